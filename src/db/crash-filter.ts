/**
 * postgres.js 3.4 can throw out of a timer when it writes to a connection that has just closed. No try/catch reaches
 * that error; the query behind it is answered by its deadline. This filter lets exactly that error pass, once installed.
 */
export function isLostSocketWrite(error: unknown): boolean {
  if (!(error instanceof TypeError)) return false
  const isNullWrite = /null/.test(error.message) && /write/.test(error.message)
  return isNullWrite && /nextWrite/.test(error.stack ?? '') && /postgres[\\/]/.test(error.stack ?? '')
}

/** For programs, not for libraries: any other error that belongs to nobody ends the process. Half alive is worse than dead. */
export function surviveLostSocketWrites(onSurvived: () => void): void {
  const judge = (error: unknown): void => {
    if (isLostSocketWrite(error)) return onSurvived()
    console.error(error)
    process.exit(1)
  }
  process.on('uncaughtException', judge)
  process.on('unhandledRejection', judge)
}

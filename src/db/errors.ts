/** Which database errors pass by themselves, which mean "smaller, please", and which are one row's own fault. */

/** No answer in time. The statement may or may not have happened. */
export class DeadlineError extends Error {
  constructor(deadlineSec: number) {
    super(`no answer from the database within ${deadlineSec} s`)
    this.name = 'DeadlineError'
  }
}

const CONNECTION_CODES: ReadonlySet<string> = new Set([
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  'CONNECT_TIMEOUT',
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
])

/** Connection exceptions, admin shutdown, crash recovery, cannot connect now, too many connections. */
const NO_CONTACT = /^(08...|57P0[1-5]|53300)$/
/** Disk full, out of memory, an I/O error. */
const SERVER_BUSY = /^(53...|58...)$/
/** Serialization failure, deadlock, lock timeout. */
const LOST_RACE = /^(40001|40P01|55P03)$/
/** Read-only server: a standby, or one in trouble. It may become writable again. */
const READ_ONLY = '25006'
const STATEMENT_TIMEOUT = '57014'

export function errorCode(error: unknown): string {
  if (error instanceof DeadlineError) return 'DEADLINE'
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : ''
}

/** We could not talk to the database at all: the outage rule counts from here. */
export function isConnectionError(error: unknown): boolean {
  const code = errorCode(error)
  return error instanceof DeadlineError || CONNECTION_CODES.has(code) || NO_CONTACT.test(code)
}

/** The same statement may well work in a moment. */
export function isTransient(error: unknown): boolean {
  const code = errorCode(error)
  return (
    isConnectionError(error) || SERVER_BUSY.test(code) || LOST_RACE.test(code) || code === READ_ONLY || isTimeout(error)
  )
}

/** The statement was too much for the time it had: less work may fit. */
export function isTimeout(error: unknown): boolean {
  return error instanceof DeadlineError || errorCode(error) === STATEMENT_TIMEOUT
}

/** A race that was lost: nothing happened. */
export function isLostRace(error: unknown): boolean {
  return LOST_RACE.test(errorCode(error))
}

/** Data exceptions, broken constraints, and whatever a host's trigger raises: it may be one row's own doing. */
export function mayBeOneRow(error: unknown): boolean {
  const code = errorCode(error)
  // Syntax, privileges, authorisation, features and transaction states are the same for every row.
  return /^[0-9A-Z]{5}$/.test(code) && !isTransient(error) && !/^(0A|25|28|3D|3F|42)/.test(code)
}

/** The id does not even fit the column's type, or is no text at all (a NUL), so there is no such job. */
export function isMalformedId(error: unknown): boolean {
  return ['22P02', '22003', '22021'].includes(errorCode(error))
}

/** A table, column, type or privilege is not as we found it: look at the catalog again. */
export function isShapeError(error: unknown): boolean {
  return ['42P01', '42703', '42704', '42804', '42883', '42501', '3F000'].includes(errorCode(error))
}

/** One line for a log: what happened, without the statement and without what was in it. */
export function describeError(error: unknown): string {
  const code = errorCode(error)
  const message = error instanceof Error ? error.message : String(error)
  return [code, message].filter(Boolean).join(': ').slice(0, 500)
}

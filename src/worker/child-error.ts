/** Why a child process did not succeed, in words the failure classes understand. */
import { basename } from 'node:path'

/** CHILD_KILLED: ended by a signal. CHILD_FAILED: a non-zero exit code. CHILD_MISSING: there is no such program here. */
export type ChildCode = 'CHILD_KILLED' | 'CHILD_FAILED' | 'CHILD_MISSING'

/** How the program itself ended; `startError` is the system's code when it never began. */
export interface ChildEnd {
  exitCode: number | null
  signal: NodeJS.Signals | null
  startError?: string
}

const STDERR_TAIL_CHARS = 2000

export class ChildError extends Error {
  override readonly name = 'ChildError'
  readonly code: ChildCode
  /** Only a missing program is: a crash, a full disk or a busy machine may be gone at the next attempt. */
  readonly permanent: boolean
  readonly exitCode: number | null
  readonly signal: NodeJS.Signals | null
  readonly stderrTail: string

  constructor(code: ChildCode, message: string, details: Partial<ChildEnd> & { stderr?: string } = {}) {
    super(message)
    this.code = code
    this.permanent = code === 'CHILD_MISSING'
    this.exitCode = details.exitCode ?? null
    this.signal = details.signal ?? null
    this.stderrTail = (details.stderr ?? '').slice(-STDERR_TAIL_CHARS)
  }
}

/** What an end that is no success means. */
export function childError(program: string, end: ChildEnd, stderr: string): ChildError {
  const name = basename(program)
  const details = { ...end, stderr }
  if (isMissing(end, stderr)) {
    return new ChildError('CHILD_MISSING', `there is no program "${program}" on this machine`, details)
  }
  if (end.startError) return new ChildError('CHILD_FAILED', `${name} could not be started: ${end.startError}`, details)
  if (end.signal) return new ChildError('CHILD_KILLED', `${name} was killed by ${end.signal}`, details)
  return new ChildError('CHILD_FAILED', `${name} ended with exit code ${end.exitCode}`, details)
}

/** Ended by us without an abort: its job is over. */
export function stoppedError(program: string, end: ChildEnd, stderr: string): ChildError {
  return new ChildError('CHILD_KILLED', `${basename(program)} was ended with its job`, { ...end, stderr })
}

/** Behind setpriv, the program is looked for by setpriv: then it is its message and exit code that tell. */
function isMissing({ exitCode, startError }: ChildEnd, stderr: string): boolean {
  return startError === 'ENOENT' || (exitCode === 127 && stderr.startsWith('setpriv: '))
}

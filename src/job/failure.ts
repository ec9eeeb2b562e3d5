/** What an ended attempt means for the job: try again later, or give up now. */

/** Trying again cannot help: the input itself is at fault. */
const PERMANENT_CODES: ReadonlySet<string> = new Set(['VALIDATION', 'INPUT_TOO_LARGE'])

/** The code of a job that failed its last transient attempt; the last cause is kept as the reason. */
export const RETRIES_EXHAUSTED = 'RETRIES_EXHAUSTED'

/** The code used when a caller names none. */
export const UNKNOWN_CODE = 'UNKNOWN'

export const MAX_CODE_LENGTH = 100
export const MAX_REASON_LENGTH = 2000

export interface FailureDetails {
  code?: string
  reason?: string
  /** Says so itself; without it the code decides. */
  permanent?: boolean
  /** Further facts for the event of a success. */
  told?: Record<string, unknown>
}

export interface Failure {
  code: string
  reason: string
  permanent: boolean
}

/** Anything unknown is transient: an attempt too many costs less than a job given up too early. */
export function classifyFailure(details: FailureDetails = {}): Failure {
  const code = cleanText(details.code, MAX_CODE_LENGTH) || UNKNOWN_CODE
  const reason = cleanText(details.reason, MAX_REASON_LENGTH) || code
  return { code, reason, permanent: details.permanent ?? PERMANENT_CODES.has(code) }
}

/** What the system's own error codes mean for a job. */
const SYSTEM_CODES: Record<string, string> = {
  ETIMEDOUT: 'TIMEOUT',
  TimeoutError: 'TIMEOUT',
  ECONNRESET: 'NETWORK',
  ECONNREFUSED: 'NETWORK',
  ENOTFOUND: 'NETWORK',
  EAI_AGAIN: 'NETWORK',
  EPIPE: 'NETWORK',
  ENOSPC: 'STORAGE',
  EROFS: 'STORAGE',
  EACCES: 'STORAGE',
  EDQUOT: 'STORAGE',
}

/** Whatever a handler throws (undefined, a string, an object with traps) becomes a failure that can be stored. */
export function classifyError(thrown: unknown): Failure {
  // A DOMException's code is a number that says nothing; its name does.
  const own = readOf(thrown, 'code')
  const code =
    cleanText(typeof own === 'number' ? '' : own, MAX_CODE_LENGTH) || cleanText(readOf(thrown, 'name'), MAX_CODE_LENGTH)
  const known = Object.hasOwn(SYSTEM_CODES, code) ? SYSTEM_CODES[code] : undefined
  const isOwnCode = /^[A-Z][A-Z0-9_]*$/.test(code)
  const permanent = readOf(thrown, 'permanent')
  return classifyFailure({
    code: known ?? (isOwnCode ? code : UNKNOWN_CODE),
    reason: cleanText(readOf(thrown, 'message'), MAX_REASON_LENGTH) || cleanText(thrown, MAX_REASON_LENGTH),
    ...(typeof permanent === 'boolean' ? { permanent } : {}),
  })
}

/** Reading a property runs foreign code too (a getter, a proxy). */
function readOf(value: unknown, property: string): unknown {
  try {
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[property] : undefined
  } catch {
    return undefined
  }
}

/** Makes any value safe to store as text: no NUL (PostgreSQL refuses it), no lone surrogate (JSON does), bounded. */
export function cleanText(value: unknown, maxLength: number): string {
  const text = typeof value === 'string' ? value : value === undefined || value === null ? '' : safeString(value)
  return text.slice(0, maxLength).replaceAll('\0', '').toWellFormed().trim()
}

/** String() runs foreign code (toString, getters) that may throw. */
function safeString(value: unknown): string {
  try {
    return String(value)
  } catch {
    return 'unprintable value'
  }
}

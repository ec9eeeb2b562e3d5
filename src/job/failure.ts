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

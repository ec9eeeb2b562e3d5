/** The answer of a call that may fail on a good day: a lost lease, nothing to claim, a job already taken. */
export type ServiceResult<T, Code extends string = string> =
  { ok: true; value: T } | { ok: false; error: string; code: Code }

export function success<T>(value: T): { ok: true; value: T } {
  return { ok: true, value }
}

export function refusal<Code extends string>(code: Code, error: string): { ok: false; error: string; code: Code } {
  return { ok: false, error, code }
}

/** Asks the server, and says what went wrong in its own words. */

export class ApiError extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.name = 'ApiError'
    this.code = code
  }
}

type Query = Record<string, string | null | undefined>

/** What is undefined is left out; null is written as nothing, which means "those that have none". */
export function withQuery(path: string, query: Query): string {
  const given = Object.entries(query).filter((pair): pair is [string, string | null] => pair[1] !== undefined)
  const search = new URLSearchParams(given.map(([key, value]) => [key, value ?? '']))
  return given.length === 0 ? path : `${path}?${search.toString()}`
}

/** A question that hangs (a frozen server, a cut line) must not look like an answer that is still good. */
const PATIENCE_MS = 10_000

export async function ask<T>(path: string, gone?: AbortSignal): Promise<T> {
  const signals = [AbortSignal.timeout(PATIENCE_MS), ...(gone ? [gone] : [])]
  return send<T>(path, { signal: AbortSignal.any(signals) })
}

/** Something that is to be done takes as long as it takes. */
export async function order<T>(path: string, body: unknown, method = 'POST'): Promise<T> {
  return send<T>(path, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
}

async function send<T>(path: string, init: RequestInit): Promise<T> {
  try {
    const response = await fetch(path, { ...init, credentials: 'same-origin' })
    const body = (await response.json().catch(() => null)) as { code?: string; error?: string } | null
    // What is no JSON is not ours: somebody stands between, with a page of their own.
    if (response.ok && body !== null) return body as T
    throw new ApiError(body?.code ?? 'NO_ANSWER', body?.error ?? `Leasehold does not answer (${response.status}).`)
  } catch (error) {
    throw error instanceof ApiError ? error : new ApiError('NO_ANSWER', 'Leasehold does not answer. Is it running?')
  }
}

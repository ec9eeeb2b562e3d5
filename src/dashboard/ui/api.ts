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

export async function ask<T>(path: string, signal?: AbortSignal): Promise<T> {
  return send<T>(path, signal ? { signal } : {})
}

export async function order<T>(path: string, body: unknown, method = 'POST'): Promise<T> {
  return send<T>(path, { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) })
}

async function send<T>(path: string, init: RequestInit): Promise<T> {
  const response = await fetch(path, { ...init, credentials: 'same-origin' }).catch((error: unknown) => {
    if (init.signal?.aborted) throw error
    throw new ApiError('NO_ANSWER', 'Leasehold does not answer. Is it running?')
  })
  const body = (await response.json().catch(() => null)) as { code?: string; error?: string } | null
  if (response.ok) return body as T
  throw new ApiError(body?.code ?? 'FAILED', body?.error ?? `${response.status} ${response.statusText}`)
}

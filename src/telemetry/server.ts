/** /metrics, /healthz and /readyz. All three answer from memory, so they also answer while the database is down. */
import { refusal, type ServiceResult, success } from '../result.ts'
import type { Metrics } from './metrics.ts'

export interface Health {
  /** The loop goes on: a pass was completed within three intervals. */
  isAlive(): boolean
  /** Why the service cannot do its work now; empty when it can. */
  obstacles(): string[]
}

export interface HttpServer {
  url: string
  stop: () => Promise<void>
}

export interface TelemetryOptions {
  metrics: Metrics
  health: Health
  /** Called right before a scrape, for gauges that depend on the moment. */
  beforeScrape?: () => void
}

export function startTelemetryServer(options: TelemetryOptions & { host: string; port: number }): Listening {
  return listen({
    ...options,
    maxBodyBytes: 1024,
    answer: async (request, url) =>
      (await answerTelemetry(request, url, options)) ??
      new Response('There is /metrics, /healthz and /readyz.\n', { status: 404 }),
  })
}

/** Null for any other path. */
export async function answerTelemetry(
  request: Request,
  { pathname }: URL,
  { metrics, health, beforeScrape }: TelemetryOptions,
): Promise<Response | null> {
  if (!['/metrics', '/healthz', '/readyz'].includes(pathname)) return null
  if (request.method !== 'GET' && request.method !== 'HEAD') {
    return new Response('expected GET\n', { status: 405, headers: { allow: 'GET, HEAD' } })
  }
  if (pathname === '/metrics') {
    beforeScrape?.()
    const headers = { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }
    return new Response(await metrics.text(), { headers })
  }
  const obstacles =
    pathname === '/readyz'
      ? health.obstacles()
      : health.isAlive()
        ? []
        : ['no pass was completed within three intervals']
  return obstacles.length === 0
    ? new Response(pathname === '/readyz' ? 'ready\n' : 'ok\n')
    : new Response(`${obstacles.join('\n')}\n`, { status: 503 })
}

export interface ListenOptions {
  host: string
  port: number
  maxBodyBytes: number
  answer: (request: Request, url: URL) => Promise<Response>
}

export type Listening = ServiceResult<HttpServer, 'PORT_TAKEN' | 'NO_SUCH_ADDRESS'>

/** Connections that say nothing are closed; a broken answer is an answer too. */
export function listen({ host, port, maxBodyBytes, answer }: ListenOptions): Listening {
  try {
    const server = Bun.serve({
      hostname: host,
      port,
      // Otherwise a second process shares the port unnoticed, and answers every other request.
      reusePort: false,
      idleTimeout: 10,
      maxRequestBodySize: maxBodyBytes,
      development: false,
      fetch(request) {
        // What stands in the Host header may make no address at all.
        const url = URL.parse(request.url)
        return url ? answer(request, url) : new Response('expected a name in the Host header\n', { status: 400 })
      },
      error: () => new Response('this could not be answered\n', { status: 500 }),
    })
    const shown = host.includes(':') ? `[${host}]` : host
    return success({ url: `http://${shown}:${server.port}`, stop: () => server.stop(true) })
  } catch (error) {
    const { code = '' } = error as { code?: string }
    if (code === 'EADDRINUSE') return refusal('PORT_TAKEN', `port ${port} is taken on ${host}: choose a free one`)
    if (code === 'EACCES') return refusal('PORT_TAKEN', `port ${port} is not ours to take: choose one above 1023`)
    if (!['EADDRNOTAVAIL', 'ENXIO', 'EINVAL'].includes(code)) throw error
    const meant = 'expected an address of this machine, such as 127.0.0.1'
    return refusal('NO_SUCH_ADDRESS', `HTTP_HOST: ${meant}, got ${host}:${port} (${code})`)
  }
}

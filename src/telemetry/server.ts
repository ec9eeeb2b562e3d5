/** /metrics, /healthz and /readyz. All three answer from memory, so they also answer while the database is down. */
import type { Metrics } from './metrics.ts'

export interface Health {
  /** The loop goes on: a pass was completed within three intervals. */
  isAlive(): boolean
  /** Why the service cannot do its work now; empty when it can. */
  obstacles(): string[]
}

export interface TelemetryServer {
  url: string
  stop(): Promise<void>
}

/** Null when the port is taken. */
export function startTelemetryServer(options: ServerOptions): TelemetryServer | null {
  try {
    return serve(options)
  } catch (error) {
    if ((error as { code?: string }).code === 'EADDRINUSE') return null
    throw error
  }
}

interface ServerOptions {
  host: string
  port: number
  metrics: Metrics
  health: Health
  /** Called right before a scrape, for gauges that depend on the moment. */
  beforeScrape?: () => void
}

function serve(options: ServerOptions): TelemetryServer {
  const { metrics, health } = options
  const server = Bun.serve({
    hostname: options.host,
    port: options.port,
    idleTimeout: 10,
    maxRequestBodySize: 1024,
    routes: {
      '/metrics': {
        GET: async () => {
          options.beforeScrape?.()
          return new Response(await metrics.text(), {
            headers: { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' },
          })
        },
      },
      '/healthz': {
        GET: () =>
          health.isAlive()
            ? new Response('ok\n')
            : new Response('no pass was completed within three intervals\n', { status: 503 }),
      },
      '/readyz': {
        GET: () => {
          const obstacles = health.obstacles()
          return obstacles.length === 0
            ? new Response('ready\n')
            : new Response(`${obstacles.join('\n')}\n`, { status: 503 })
        },
      },
    },
    fetch: () => new Response('There is /metrics, /healthz and /readyz.\n', { status: 404 }),
  })
  return { url: `http://${options.host}:${server.port}`, stop: () => server.stop(true) }
}

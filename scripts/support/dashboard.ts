/** The dashboard around an operator with a database client of its own, so that no page ever waits in front of the reaper. */
import type { Logger } from 'pino'

import { accessFault } from '../../src/dashboard/access.ts'
import type { PassLog } from '../../src/dashboard/passes.ts'
import { startDashboard } from '../../src/dashboard/server.ts'
import { settingsInForce } from '../../src/config/describe.ts'
import type { Config } from '../../src/config/config.ts'
import { openDatabase } from '../../src/db/client.ts'
import type { Profile } from '../../src/db/profile.ts'
import type { Dispatcher } from '../../src/dispatch/dispatcher.ts'
import type { Metrics } from '../../src/telemetry/metrics.ts'
import { success } from '../../src/result.ts'
import type { Health, HttpServer, Listening } from '../../src/telemetry/server.ts'
import { operatorOf } from './operator.ts'
import { EXIT_CONFIGURATION, type Target } from './program.ts'

/** A page that takes longer than this is not worth waiting for. */
const PAGE_TIMEOUT_SEC = 5
const CONNECTIONS = 3

export interface DashboardParts {
  config: Config
  tables: readonly Profile[]
  url: string
  port: number
  log: Logger
  metrics: Metrics
  health: Health
  beforeScrape?: () => void
  passes: PassLog | null
  dispatch: Dispatcher | undefined
}

/** Ends the program when the dashboard must not be served like this. */
export function refuseOpenDashboard(config: Config): void {
  const fault = accessFault({ host: config.http.host, token: config.dashboard.token })
  if (fault === null) return
  process.stderr.write(`The configuration cannot be used:\n  ${fault}\n`)
  process.exit(EXIT_CONFIGURATION)
}

export function openDashboard(parts: DashboardParts): Listening {
  const { config, tables, log, metrics, dispatch } = parts
  const db = openDatabase({
    url: parts.url,
    poolMax: CONNECTIONS,
    prepare: config.database.prepare,
    queryTimeoutSec: Math.min(PAGE_TIMEOUT_SEC, config.database.queryTimeoutSec),
    applicationName: 'leasehold dashboard',
  })
  const server = startDashboard({
    ...config.dashboard,
    host: config.http.host,
    port: parts.port,
    metrics,
    health: parts.health,
    ...(parts.beforeScrape ? { beforeScrape: parts.beforeScrape } : {}),
    operator: operatorOf(config, tables, db, { dispatch, metrics, log }),
    passes: parts.passes,
    settings: settingsInForce(),
    database: db.target,
    cli: process.env.npm_config_user_agent?.startsWith('npm/') ? 'npm run --silent cli --' : 'bun run cli',
    shutdownTimeoutSec: config.worker.shutdownTimeoutSec,
    log,
  })
  if (!server.ok) {
    void db.close()
    return server
  }
  const { url, stop } = server.value
  return success({
    url,
    async stop() {
      await stop()
      await db.close()
    },
  })
}

/** The same, or the end of the program: whoever started it must hear that nobody listens. */
export async function openDashboardOrExit(
  parts: DashboardParts,
  { portName, target }: { portName: string; target: Target },
): Promise<HttpServer> {
  const dashboard = openDashboard(parts)
  if (dashboard.ok) return dashboard.value
  const isTaken = dashboard.code === 'PORT_TAKEN'
  parts.log.error(isTaken ? `${portName}: ${dashboard.error}` : dashboard.error)
  await target.stop()
  return process.exit(isTaken ? 1 : EXIT_CONFIGURATION)
}

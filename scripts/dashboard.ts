/** bun run start:dashboard: the dashboard alone, beside a reaper that runs elsewhere. */
import { openDatabase } from '../src/db/client.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { describeError } from '../src/db/errors.ts'
import { readClock } from '../src/db/look.ts'
import { migrate } from '../src/db/migrate.ts'
import { knownStages } from '../src/db/rules.ts'
import { createLog } from '../src/telemetry/log.ts'
import { createMetrics } from '../src/telemetry/metrics.ts'
import { openDashboardOrExit, refuseOpenDashboard } from './support/dashboard.ts'
import { openDispatcher } from './support/dispatch.ts'
import { findDatabase, migrationOf, readConfigOrExit, readTablesOrExit, untilStopped } from './support/program.ts'

const config = readConfigOrExit()
refuseOpenDashboard(config)
const stopped = untilStopped()
const log = createLog({ level: config.logLevel })
for (const warning of config.warnings) log.warn(warning)

const profiles = await readTablesOrExit(config, config.reaper.tables)
const tables = profiles.map(({ table }) => table)
const metrics = createMetrics({ stages: knownStages(profiles, config.stages), tables })
surviveLostSocketWrites(() => log.warn('a connection closed while it was written to; its query runs into the deadline'))

const target = await findDatabase(config, log)
const db = openDatabase({ url: target.url, poolMax: 1, queryTimeoutSec: 2, applicationName: 'leasehold dashboard' })
if (target.isEmbedded) await migrate(db, target.url, migrationOf(config, profiles))

// Answers from memory: the last look at the database's clock, some seconds old.
let obstacle: string | null = 'no look at the database yet'
const look = (): Promise<unknown> =>
  readClock(db).then(
    () => (obstacle = null),
    (error: unknown) => (obstacle = `waiting for the database at ${db.target}: ${describeError(error)}`),
  )
void look()
const looking = setInterval(() => void look(), 5000)

const dashboard = await openDashboardOrExit(
  {
    config,
    url: target.url,
    port: config.dashboard.port,
    log,
    metrics,
    tables: profiles,
    health: { isAlive: () => true, obstacles: () => (obstacle === null ? [] : [obstacle]) },
    passes: null,
    dispatch: await openDispatcher(config, target.url, log),
  },
  { portName: 'DASHBOARD_HTTP_PORT', target },
)
log.info({ tables, database: db.target, http: dashboard.url }, 'dashboard started')

const signal = await stopped
log.info({ signal }, 'stopping')
clearInterval(looking)
await dashboard.stop()
await db.close()
await target.stop()
log.info('stopped')
process.exit(0)

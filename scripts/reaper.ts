/** bun run start:reaper: the reaper as a service, with the dashboard, /metrics, /healthz and /readyz beside it. */
import { recoverySettings } from '../src/config/config.ts'
import { createPassLog } from '../src/dashboard/passes.ts'
import { openDatabase } from '../src/db/client.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { migrate } from '../src/db/migrate.ts'
import { knownStages } from '../src/db/rules.ts'
import { createReaper } from '../src/reaper/loop.ts'
import { createLog } from '../src/telemetry/log.ts'
import { createMetrics } from '../src/telemetry/metrics.ts'
import { openDashboardOrExit, refuseOpenDashboard } from './support/dashboard.ts'
import { openDispatcher } from './support/dispatch.ts'
import { findDatabase, readConfigOrExit, migrationOf, readTablesOrExit, untilStopped } from './support/program.ts'
import { findServiceManager } from './support/service-manager.ts'

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
const db = openDatabase({
  url: target.url,
  poolMax: config.database.poolMax,
  prepare: config.database.prepare,
  queryTimeoutSec: config.database.queryTimeoutSec,
  applicationName: 'leasehold reaper',
  onReplaced: (reason) => {
    metrics.count('database_client_replacements_total', {})
    log.debug({ reason }, 'database client replaced')
  },
})
if (target.isEmbedded) await migrate(db, target.url, migrationOf(config, profiles))

const dispatch = await openDispatcher(config, target.url, log, { isKeeper: true })
const passes = createPassLog()
const manager = findServiceManager(log)
const reaper = createReaper({
  db,
  log,
  metrics,
  tables: profiles,
  ...recoverySettings(config),
  intervalSec: config.reaper.intervalSec,
  batchSize: config.reaper.batchSize,
  onPass(pass) {
    passes.add(pass)
    // Also when it failed: in an outage of the database the loop is fine, and a restart would only forget the outage.
    manager.working(reaper.health.obstacles().join('; ') || 'every pass goes through')
  },
  ...(dispatch ? { dispatch } : {}),
})
const dashboard = await openDashboardOrExit(
  {
    config,
    url: target.url,
    port: config.http.port,
    log,
    metrics,
    passes,
    dispatch,
    tables: profiles,
    health: reaper.health,
    beforeScrape: () => reaper.showAges(),
  },
  { portName: 'HTTP_PORT', target },
)
log.info({ tables, database: db.target, http: dashboard.url, intervalSec: config.reaper.intervalSec }, 'reaper started')
reaper.start()
manager.watch(() => reaper.health.isAlive())

const signal = await stopped
manager.stopping()
log.info({ signal }, 'stopping')
await reaper.stop()
await dashboard.stop()
await dispatch?.close()
await db.close()
await target.stop()
log.info('stopped')
process.exit(0)

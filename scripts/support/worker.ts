/** The worker process itself, under its supervisor. */
import { mkdirSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import { resolve } from 'node:path'

import type { Logger } from 'pino'

import type { Config } from '../../src/config/config.ts'
import { SETTINGS } from '../../src/config/settings.ts'
import { surviveLostSocketWrites } from '../../src/db/crash-filter.ts'
import { createLocalStorage } from '../../src/storage/local.ts'
import { createS3Storage } from '../../src/storage/s3.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { startTelemetryServer } from '../../src/telemetry/server.ts'
import type { Handlers } from '../../src/worker/handler.ts'
import { createWorker, type Worker } from '../../src/worker/runtime.ts'
import { knownStages } from '../../src/db/rules.ts'
import type { Profile } from '../../src/db/profile.ts'
import { openDispatcher } from './dispatch.ts'
import { untilStopped } from './program.ts'

/** How the worker tells its supervisor that no restart can mend it: a code no program uses by chance. */
export const EXIT_HOPELESS = 78
const REPORT_EVERY_MS = 5000

export async function runWorker(config: Config, profiles: Profile[], holder: string, log: Logger): Promise<never> {
  const stopped = Promise.race([untilStopped(), untilOrphaned()])
  const { tables: _, handlers: module, maxConcurrency, ...settings } = config.worker
  const tables = profiles.map(({ table }) => table)
  const handlers = await loadHandlers(module ?? '')
  const metrics = createMetrics({ stages: knownStages(profiles, config.stages), tables })
  metrics.count('worker_recovered_jobs_total', { reason: 'worker_exit' }, Number(process.env.LEASEHOLD_RECOVERED ?? 0))
  surviveLostSocketWrites(() =>
    log.warn('a connection closed while it was written to; its query runs into the deadline'),
  )
  // Our own folder is made; one that somebody named may be a mount that is missing, and must not be filled beside it.
  if (config.storage.dir === SETTINGS.storageDir.fallback) mkdirSync(config.storage.dir, { recursive: true })
  const dispatch = await openDispatcher(config, config.database.url ?? '', log)
  const worker = createWorker({
    ...settings,
    ...(maxConcurrency === null ? {} : { maxConcurrency }),
    databaseUrl: config.database.url ?? '',
    prepare: config.database.prepare,
    queryTimeoutSec: config.database.queryTimeoutSec,
    tables: profiles,
    handlers,
    holder,
    storage: config.storage.s3 ? createS3Storage(config.storage.s3) : createLocalStorage({ root: config.storage.dir }),
    heartbeatSec: config.heartbeatSec,
    stages: config.stages,
    maxAttempts: config.maxAttempts,
    backoffLadderMs: config.backoffLadderMs,
    scratch: config.scratch,
    logLevel: config.logLevel,
    log,
    metrics,
    ...(dispatch ? { dispatch } : {}),
  })
  const health = { isAlive: () => true, obstacles: () => worker.obstacles() }
  const server = startTelemetryServer({ host: config.http.host, port: config.worker.httpPort, metrics, health })
  if (!server.ok) log.warn({ port: config.worker.httpPort }, `this worker shows no metrics: ${server.error}`)
  worker.start()
  log.info(
    { holder, tables, stages: Object.keys(handlers), http: server.ok ? server.value.url : undefined },
    'worker ready',
  )
  reportWork(worker)

  const end = await Promise.race([stopped, worker.died])
  if (end instanceof Error) {
    log.fatal({ error: end.message }, 'the heartbeat thread died; nothing keeps the leases alive')
    process.exit(1)
  }
  log.info({ signal: end, inFlight: worker.inFlight() }, 'stopping: no new jobs, heartbeats go on')
  await worker.stop()
  if (server.ok) await server.value.stop()
  await dispatch?.close()
  log.info('stopped')
  process.exit(0)
}

/** Tells the supervisor, while the main loop moves, what it passes on to systemd or PM2. A missing database is no reason to be restarted. */
function reportWork(worker: Worker): void {
  const report = (): void => {
    const status = worker.obstacles().join('; ') || `jobs running: ${worker.inFlight()}`
    process.send?.(status, undefined, undefined, () => undefined)
  }
  report()
  setInterval(report, REPORT_EVERY_MS).unref()
}

/** Without its supervisor nobody would restart this worker or pass a signal on to it: it stops as if it had got one. */
function untilOrphaned(): Promise<'orphaned'> {
  const parent = process.ppid
  return new Promise((done) => {
    setInterval(() => process.ppid !== parent && done('orphaned'), 1000).unref()
  })
}

/** A module whose default export has one function per stage; anything else is said and not restarted. */
async function loadHandlers(path: string): Promise<Handlers> {
  try {
    const module = (await import(pathToFileURL(resolve(path)).href)) as { default?: unknown }
    const handlers = module.default
    const isUsable =
      typeof handlers === 'object' &&
      handlers !== null &&
      Object.values(handlers).every((each) => typeof each === 'function')
    if (isUsable && Object.keys(handlers).length > 0) return handlers as Handlers
    process.stderr.write(
      `WORKER_HANDLERS: expected ${path} to export by default an object with one function per stage\n`,
    )
  } catch (error) {
    process.stderr.write(
      `WORKER_HANDLERS: ${path} could not be loaded: ${error instanceof Error ? error.message : String(error)}\n`,
    )
  }
  return process.exit(EXIT_HOPELESS)
}

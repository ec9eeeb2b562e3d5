/** bun run start:worker: a supervisor, and under it the worker that runs the handlers of WORKER_HANDLERS. */
import { spawn } from 'node:child_process'

import { recoverySettings } from '../src/config/config.ts'
import { openDatabase } from '../src/db/client.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { migrate } from '../src/db/migrate.ts'
import { tableHandle } from '../src/db/open-once.ts'
import { giveBack } from '../src/db/reap.ts'
import { createLog } from '../src/telemetry/log.ts'
import { superviseWorker } from '../src/worker/supervisor.ts'
import { rulesFor } from '../src/db/rules.ts'
import { publishJobs } from '../src/dispatch/publish.ts'
import { openDispatcher } from './support/dispatch.ts'
import { EXIT_CONFIGURATION, findDatabase, migrationOf, readConfigOrExit, readTablesOrExit } from './support/program.ts'
import { findServiceManager } from './support/service-manager.ts'
import { EXIT_HOPELESS, runWorker } from './support/worker.ts'

const config = readConfigOrExit()
const log = createLog({ level: config.logLevel })
if (config.worker.handlers === null) {
  process.stderr.write('WORKER_HANDLERS: expected the path of a module with one function per stage, got none\n')
  process.exit(EXIT_CONFIGURATION)
}

const profiles = await readTablesOrExit(config, config.worker.tables)
const holder = process.env.LEASEHOLD_HOLDER
if (holder !== undefined) {
  await runWorker(config, profiles, holder, log)
} else {
  // Until there is a worker to stop, a signal ends us at once; the embedded database dies with us.
  let stop = (signal: NodeJS.Signals): void => process.exit(signal === 'SIGTERM' ? 143 : 130)
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal))
  for (const warning of config.warnings) log.warn(warning)
  surviveLostSocketWrites(() => log.warn('a connection closed while it was written to'))
  const target = await findDatabase(config, log)
  const db = openDatabase({ url: target.url, poolMax: 1, queryTimeoutSec: 5, applicationName: 'leasehold supervisor' })
  const { maxAttempts, backoffLadderMs: ladderMs } = config
  if (target.isEmbedded)
    await migrate(db, target.url, migrationOf(config, await readTablesOrExit(config, config.reaper.tables)))

  const watched = profiles.map((profile) => ({
    name: profile.table,
    handle: tableHandle(db, profile),
    rules: { ...rulesFor(profile, recoverySettings(config)), outage: null },
  }))
  const dispatch = await openDispatcher(config, target.url, log)
  const manager = findServiceManager(log)
  const supervisor = superviseWorker({
    log,
    hopelessCode: EXIT_HOPELESS,
    // A group of its own: a Ctrl-C reaches us alone, and we pass it on once.
    spawnWorker(name, recovered) {
      // With our own switches: without --no-env-file it would read an .env that we were told to leave alone.
      const worker = spawn(process.execPath, [...process.execArgv, ...process.argv.slice(1)], {
        env: {
          ...process.env,
          DATABASE_URL: target.url,
          LEASEHOLD_HOLDER: name,
          LEASEHOLD_RECOVERED: String(recovered),
        },
        stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
        detached: true,
      })
      // Said by its main loop, passed on by ours: the watchdog sees both stand still.
      return worker.on('message', (status) => typeof status === 'string' && manager.working(status))
    },
    async giveBack(name, cause) {
      const given = await Promise.all(
        watched.map(async ({ name: tableName, handle, rules }) => {
          const rows = await handle.use((table) =>
            giveBack(db, table, { rules, maxAttempts, ladderMs }, { holder: name, cause }),
          )
          const requeued = rows.filter(({ outcome }) => outcome === 'requeued')
          await publishJobs(dispatch, tableName, requeued, { log, metrics: undefined })
          return rows
        }),
      )
      for (const { id: jobId, outcome, attempt } of given.flat())
        log.info({ jobId, outcome, attempt, cause }, 'job given back')
      return given.flat().filter(({ outcome }) => outcome === 'requeued').length
    },
  })
  stop = (signal) => {
    manager.stopping()
    supervisor.stop(signal)
  }
  const code = await supervisor.ended
  await dispatch?.close()
  await db.close()
  await target.stop()
  process.exit(code === EXIT_HOPELESS ? EXIT_CONFIGURATION : code)
}

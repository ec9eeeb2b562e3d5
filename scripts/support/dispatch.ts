/** The dispatcher that QUEUE_PROVIDER asks for; none when workers poll. */
import type { Config } from '../../src/config/config.ts'
import type { Dispatcher } from '../../src/dispatch/dispatcher.ts'
import { createPgBossDispatcher, PgBossMissing } from '../../src/dispatch/pgboss.ts'
import type { Log } from '../../src/telemetry/log.ts'
import { EXIT_CONFIGURATION } from './program.ts'

export async function openDispatcher(
  config: Config,
  url: string,
  log: Log,
  { isKeeper = false }: { isKeeper?: boolean } = {},
): Promise<Dispatcher | undefined> {
  if (config.queueProvider === 'poll') return undefined
  try {
    const { pgbossSchema: schema } = config
    return await createPgBossDispatcher({ url, schema, log, isKeeper, timeoutSec: config.database.queryTimeoutSec })
  } catch (error) {
    if (!(error instanceof PgBossMissing)) throw error
    process.stderr.write(`${error.message}\n`)
    return process.exit(EXIT_CONFIGURATION)
  }
}

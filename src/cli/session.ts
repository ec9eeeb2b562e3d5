/** What nearly every command begins with: the settings, the tables, a database that answers, and the operator over them. */
import type { Config } from '../config/config.ts'
import { type Database, openDatabase } from '../db/client.ts'
import { describeError, errorCode, isConnectionError } from '../db/errors.ts'
import { readClock } from '../db/look.ts'
import { migrate } from '../db/migrate.ts'
import type { Profile } from '../db/profile.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import type { Operator } from '../operator/operator.ts'
import type { Host } from './host.ts'

export interface Session {
  config: Config
  profiles: Profile[]
  url: string
  db: Database
  operator: Operator
  dispatch: Dispatcher | undefined
  close(): Promise<void>
}

export interface Opening {
  /** `as they are`: for commands that judge tables or bring them up themselves. `unread`: for one that has no use for them. */
  tables?: 'ready' | 'as they are' | 'unread'
  /** Jobs that become due are published, where a dispatcher is configured. */
  isActing?: boolean
  poolMax?: number
  queryTimeoutSec?: number
}

/** Long enough for a far one, short enough for a person who waits. */
const CONNECT_SEC = 5

/** A wrong password, an unknown role or database: no way in is like no database. */
const NO_WAY_IN = /^(28|3D)/

/** The database did not answer when we came. */
export class Unreachable extends Error {
  override readonly name = 'Unreachable'
}

export async function openSession(host: Host, opening: Opening = {}): Promise<Session> {
  const config = host.readConfig()
  const { tables = 'ready' } = opening
  const profiles = tables === 'unread' ? [] : await host.readTables(config)
  const target = await host.findDatabase(config)
  const db = openDatabase({
    url: target.url,
    prepare: config.database.prepare,
    poolMax: opening.poolMax ?? 4,
    queryTimeoutSec: opening.queryTimeoutSec ?? config.database.queryTimeoutSec,
    applicationName: 'leasehold cli',
  })
  const closers = [() => target.stop(), () => db.close()]
  const close = async (): Promise<void> => {
    for (const each of closers.toReversed()) await each()
  }
  try {
    await orStopped(host.stopped, readClock(db, CONNECT_SEC))
    // The embedded database is ours alone: it is brought up as the reaper does, so that a first look shows empty tables.
    if (target.isEmbedded && tables === 'ready') await migrate(db, target.url, host.migrationOf(config, profiles))
    const dispatch = opening.isActing ? await host.openDispatcher(config, target.url) : undefined
    if (dispatch) closers.push(() => dispatch.close())
    const operator = host.operatorOf(config, profiles, db, { dispatch })
    return { config, profiles, url: target.url, db, operator, dispatch, close }
  } catch (error) {
    await close()
    const isAway = isConnectionError(error) || NO_WAY_IN.test(errorCode(error))
    throw isAway ? new Unreachable(`${db.target} cannot be reached: ${describeError(error)}`, { cause: error }) : error
  }
}

/** Somebody who presses Ctrl-C does not wait for a database that says nothing. */
async function orStopped<T>(stopped: AbortSignal, asked: Promise<T>): Promise<T> {
  asked.catch(() => undefined)
  stopped.throwIfAborted()
  const abort = Promise.withResolvers<never>()
  const onAbort = (): void => abort.reject(stopped.reason)
  stopped.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([asked, abort.promise])
  } finally {
    stopped.removeEventListener('abort', onAbort)
  }
}

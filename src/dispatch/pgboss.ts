/**
 * Job ids through pg-boss. A message says only "look at this job": the table decides whether it runs. So a message is
 * deleted as soon as it is taken, pg-boss retries nothing, and one that is lost or comes twice does no harm.
 */
import { createHash } from 'node:crypto'

import type { PgBoss } from 'pg-boss'

import { describeError } from '../db/errors.ts'
import type { Log } from '../telemetry/log.ts'
import type { Dispatcher, Offer } from './dispatcher.ts'

export interface PgBossOptions {
  url: string
  /** Where pg-boss keeps its tables. Made when it is missing; never upgraded by us. */
  schema: string
  log: Log
  /** Whether this process also tidies up in pg-boss's tables. One of them should: the reaper. */
  isKeeper?: boolean
  timeoutSec?: number
}

export class PgBossMissing extends Error {
  constructor() {
    super('QUEUE_PROVIDER: pgboss needs the package pg-boss: run npm install pg-boss, or remove it to use poll')
    this.name = 'PgBossMissing'
  }
}

type PgBossClass = typeof PgBoss

/** Messages of one insert: an outage leaves many jobs at once. */
const CHUNK = 1000

export async function createPgBossDispatcher(options: PgBossOptions): Promise<Dispatcher> {
  const { log } = options
  const Boss = await importPgBoss()
  let started: Promise<PgBoss> | null = null
  const queues = new Map<string, Promise<void>>()

  /** Started with the first use, and again after a start that failed: a database that is away comes back. */
  function boss(): Promise<PgBoss> {
    started ??= startBoss(Boss, options).catch((error: unknown) => {
      started = null
      throw error
    })
    return started
  }

  /** `short`: one waiting message per key. The name is made once per process; making it again changes nothing. */
  async function queueOf(table: string): Promise<{ client: PgBoss; queue: string }> {
    const client = await boss()
    const queue = queueName(table)
    if (!queues.has(queue)) {
      const made = client.createQueue(queue, { policy: 'short', retryLimit: 0 })
      queues.set(
        queue,
        made.catch((error: unknown) => {
          queues.delete(queue)
          throw error
        }),
      )
    }
    await queues.get(queue)
    return { client, queue }
  }

  return {
    async publish(table, jobs) {
      const { client, queue } = await queueOf(table)
      for (let from = 0; from < jobs.length; from += CHUNK) {
        await client.insert(queue, jobs.slice(from, from + CHUNK).map(toMessage))
      }
    },

    async fetch(table, limit) {
      if (limit < 1) return []
      const { client, queue } = await queueOf(table)
      const messages = await client.fetch(queue, { batchSize: limit })
      if (messages.length === 0) return []
      const ids = messages.map(({ data }) => idOf(data)).filter((id) => id !== null)
      if (ids.length < messages.length)
        log.warn({ queue, messages: messages.length - ids.length }, 'messages without the id of a job were dropped')
      try {
        await client.deleteJob(
          queue,
          messages.map(({ id }) => id),
        )
      } catch (error) {
        // It stays behind as an active message that nobody finishes; pg-boss expires it.
        log.warn({ queue, error: describeError(error) }, 'messages could not be deleted')
      }
      return [...new Set(ids)]
    },

    async close() {
      const client = await started?.catch(() => null)
      started = null
      await client?.stop({ graceful: false, close: true })
    },
  }
}

/** Its own names, so that queues which the team already has are left alone. */
export function queueName(table: string): string {
  const plain = table.replaceAll(/[^\w.-]/g, '-')
  if (plain === table) return `leasehold/${table}`
  return `leasehold/${plain}-${createHash('sha256').update(table).digest('hex').slice(0, 8)}`
}

/**
 * One message per job waits for its due time. "Now" has a key of its own: a message for later must not swallow the offer of
 * a job that somebody has made due meanwhile.
 */
function toMessage({ id, dueAt }: Offer): { data: { id: string }; singletonKey: string; startAfter?: Date } {
  const isLater = dueAt !== null && dueAt.getTime() > 0
  return isLater ? { data: { id }, singletonKey: id, startAfter: dueAt } : { data: { id }, singletonKey: `${id} now` }
}

/** A team may publish ids itself, and a small number is as good as text. */
function idOf(data: unknown): string | null {
  const id = (data as { id?: unknown } | null)?.id
  if (typeof id === 'string' && id !== '') return id
  return Number.isSafeInteger(id) ? String(id) : null
}

async function importPgBoss(): Promise<PgBossClass> {
  try {
    const module = await import('pg-boss')
    return module.PgBoss
  } catch (error) {
    if ((error as { code?: string }).code !== 'ERR_MODULE_NOT_FOUND') throw error
    throw new PgBossMissing()
  }
}

async function startBoss(Boss: PgBossClass, options: PgBossOptions): Promise<PgBoss> {
  try {
    return await startWith(Boss, options, false)
  } catch (error) {
    if (!/not installed/i.test(describeError(error))) throw explained(error, options)
    options.log.info({ schema: options.schema }, 'pg-boss has no tables here yet: making them')
    return startWith(Boss, options, true)
  }
}

async function startWith(
  Boss: PgBossClass,
  { url, schema, log, isKeeper = false, timeoutSec = 10 }: PgBossOptions,
  migrate: boolean,
): Promise<PgBoss> {
  // Its driver's own deadlines: a connection that went silent is given up, and the next call opens another.
  const deadlines = { connectionTimeoutMillis: timeoutSec * 1000, query_timeout: timeoutSec * 1000 }
  const client = new Boss({
    ...deadlines,
    connectionString: url,
    application_name: 'leasehold pg-boss',
    max: 2,
    schema,
    migrate,
    supervise: isKeeper,
    schedule: false,
  })
  client.on('error', (error) => log.warn({ error: describeError(error) }, 'pg-boss reports a fault'))
  try {
    await client.start()
    return client
  } catch (error) {
    await client.stop({ graceful: false, close: true }).catch(() => undefined)
    throw error
  }
}

function explained(error: unknown, { schema }: PgBossOptions): unknown {
  if (!/migrat|version/i.test(describeError(error))) return error
  return new Error(
    `the pg-boss tables in schema ${schema} are of another version (${describeError(error)}): upgrade them where your application does, or set PGBOSS_SCHEMA to a schema of our own`,
  )
}

/** One cheap look at a table: what is due to be reaped, when the next deadline comes, and the numbers for the gauges. */
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { lockKey } from './reap.ts'
import { sql } from './sql.ts'
import type { JobTable } from './table.ts'
import { hasAttemptsLeft, isDue } from './undispatched.ts'

export interface Look {
  /** The database's clock, in seconds since 1970. */
  now: number
  /** A standby, or a server in trouble: nothing can be moved. */
  isReadOnly: boolean
  /** Nobody else is scanning this table just now; asked only by a reaper. */
  isLeader: boolean
  processing: number
  /** Processing with a lease that has not run out, or that is about to be reaped for it. */
  held: number
  expired: number
  /** How long the time of the first of them has been up. */
  overdueSec: number | null
  /** Due, but left alone because the database was away. */
  spared: number
  /** Nothing in the row tells how old it is. */
  ungoverned: number
  nextDeadlineSec: number | null
  nearestLeaseSec: number | null
  queued: number
  due: number
  oldestDueSec: number | null
  /** Due for so long that they must have been lost on their way to a worker. */
  undispatched: number
  /** Queued with no attempts left: no claim ever takes them. */
  exhausted: number
  failed: number
  /** An estimate of all other rows, from the planner's statistics. */
  finishedEstimate: number
}

/** The cheapest question there is: are you there, and what time is it? */
export async function readClock(db: Database, deadlineSec = 2): Promise<number> {
  const [row] = await db.query((run) => run<{ now: number }[]>`select extract(epoch from ${NOW})::float8 as now`, {
    deadlineSec,
  })
  return row?.now ?? 0
}

/** Counts stop here, so that a look stays cheap on any table. */
export const COUNT_CAP = 100_000

export interface LookSettings {
  rules: ExpiryRules
  maxAttempts: number
  orphanSec: number
  /** Only a reaper asks for the scan lock: somebody who merely looks must not keep one from its work. */
  isReaper?: boolean
}

export async function lookAt(
  db: Database,
  table: JobTable,
  { rules, maxAttempts, orphanSec, isReaper }: LookSettings,
): Promise<Look> {
  const { dialect: d } = table
  const [look] = await db.query(
    (run) => run<Look[]>`
      select
        extract(epoch from ${NOW})::float8 as now,
        current_setting('transaction_read_only') = 'on' as "isReadOnly",
        ${isReaper ? sql`(select pg_try_advisory_xact_lock(${lockKey(table)}))` : sql`false`} as "isLeader",
        running.*, waiting.*,
        (select count(*)::int from (
          select 1 from ${d.table} as j where ${d.read.status} = ${d.status.failed} limit ${COUNT_CAP}) as dead) as failed,
        (select greatest(c.reltuples, 0)::float8 from pg_class c where c.oid = ${d.regclass}) as "finishedEstimate"
      from (
        select count(*)::int as processing,
          count(${d.read.leaseExpiresAt})::int as held,
          count(*) filter (where ends.lh_at <= ${NOW})::int as expired,
          extract(epoch from ${NOW} - min(ends.lh_at) filter (where ends.lh_at <= ${NOW} and isfinite(ends.lh_at)))::float8 as "overdueSec",
          count(*) filter (where ends.lh_spared)::int as spared,
          count(*) filter (where ends.lh_ungoverned)::int as ungoverned,
          extract(epoch from min(ends.lh_at) filter (where ends.lh_at > ${NOW}) - ${NOW})::float8 as "nextDeadlineSec",
          extract(epoch from min(row_says.lease) filter (where isfinite(row_says.lease)) - ${NOW})::float8 as "nearestLeaseSec"
        from ${d.table} as j
        ${expiry(table, rules)}
        where ${d.read.status} = ${d.status.processing}
      ) as running
      cross join (
        select count(*)::int as queued,
          count(*) filter (where is_due)::int as due,
          extract(epoch from ${NOW} - min(due_at) filter (where is_due and isfinite(due_at)))::float8 as "oldestDueSec",
          count(*) filter (where is_due and isfinite(due_at) and due_at <= ${NOW} - make_interval(secs => ${orphanSec}))::int as undispatched,
          count(*) filter (where not has_attempts)::int as exhausted
        from (
          select ${isDue(table, maxAttempts)} as is_due, ${hasAttemptsLeft(table, maxAttempts)} as has_attempts, ${d.dueAt} as due_at
          from ${d.table} as j
          where ${d.read.status} = ${d.status.queued}
          order by ${d.dueAt}
          limit ${COUNT_CAP}) as queue
      ) as waiting`,
  )
  if (!look) throw new Error(`a look at ${table.name} answered nothing`)
  return look
}

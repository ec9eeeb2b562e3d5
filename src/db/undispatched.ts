/** Queued jobs that have been due for too long: lost on their way to a worker. They are offered again, or given up. */
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface UndispatchedChoice {
  /** Due for longer than this. */
  orphanSec: number
  maxAttempts: number
  limit: number
  /** Offered a moment ago, in tables that have no due time to remember it by. */
  exclude: readonly string[]
}

export interface UndispatchedRow {
  id: string
  stage: string | null
  waitedSec: number
}

/** Due by the row's own word, with attempts left. */
export function isDue(table: JobTable, maxAttempts: number): Fragment {
  const { nextRunAt } = table.dialect.read
  return sql`(${nextRunAt} is null or ${nextRunAt} <= ${NOW}) and ${hasAttemptsLeft(table, maxAttempts)}`
}

export function hasAttemptsLeft({ dialect: d }: JobTable, maxAttempts: number): Fragment {
  return sql`${d.attempts} < greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)`
}

/**
 * Queued → queued, due from now: the new due time keeps the next look from offering it again at once. Race closed here: a
 * claim at the same moment (the row is locked, and a locked one is passed over).
 */
export function offerAgain(db: Database, table: JobTable, choice: UndispatchedChoice): Promise<UndispatchedRow[]> {
  const { dialect: d, profile } = table
  const change = profile.columns.nextRunAt
    ? sql`
      update ${d.table} as j
      set ${d.set({ nextRunAt: sql`clock_timestamp()` })}
      from picked
      where ${d.read.id} = picked.lh_id
        and ${d.isStill('queued')}
      returning picked.*`
    : sql`select * from picked`
  return move(db, table, choice, change, profile.events?.names.undispatched ?? '')
}

/** Queued → failed, for tables whose policy says so. The same race is closed the same way. */
export function giveUpUndispatched(
  db: Database,
  table: JobTable,
  choice: UndispatchedChoice,
): Promise<UndispatchedRow[]> {
  const { dialect: d, profile } = table
  const change = sql`
    update ${d.table} as j
    set ${d.set({
      status: d.status.failed,
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      failCode: sql`'undispatched'::text`,
      failReason: sql`${profile.policy.undispatchedReason ?? 'undispatched'}::text`,
      finishedAt: sql`clock_timestamp()`,
    })}
    from picked
    where ${d.read.id} = picked.lh_id
      and ${d.isStill('queued')}
    returning picked.*`
  return move(db, table, choice, change, profile.events?.names.failed ?? '')
}

function move(
  db: Database,
  table: JobTable,
  { orphanSec, maxAttempts, limit, exclude }: UndispatchedChoice,
  change: Fragment,
  eventType: string,
): Promise<UndispatchedRow[]> {
  const { dialect: d } = table
  return db.query(
    (run) => run<UndispatchedRow[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.read.stage}::text as lh_stage, ${d.attempts} as lh_attempt,
          extract(epoch from ${NOW} - ${d.dueAt})::float8 as lh_waited_sec
        from ${d.table} as j
        where ${d.read.status} = ${d.status.queued}
          and ${isDue(table, maxAttempts)}
          and isfinite(${d.dueAt})
          and ${d.dueAt} <= ${NOW} - make_interval(secs => ${orphanSec})
          ${exclude.length > 0 ? sql`and not (${d.read.id} = any(${list(exclude)}))` : sql``}
        order by ${d.dueAt}
        limit ${limit}
        for no key update of j skip locked
      ), moved as (
        ${change}
      ), told as (
        ${d.tell({
          jobId: sql`moved.lh_id`,
          type: sql`${eventType}::text`,
          details: sql`jsonb_build_object('reason', 'undispatched', 'attempt', moved.lh_attempt, 'waited_sec', round(moved.lh_waited_sec::numeric, 3))`,
          source: sql`from moved order by moved.lh_id`,
        })}
      )
      select lh_id::text as id, lh_stage as stage, lh_waited_sec as "waitedSec" from moved`,
  )
}

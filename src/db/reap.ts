/** Processing → queued or failed, for jobs whose time ran out. One statement per batch: lock, decide, move, tell. */
import type { ReapRule } from '../job/recovery.ts'
import type { Database } from './client.ts'
import { backoffSec, fromNow, NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { isAsSeen, type Seen } from './job-filter.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface ReapSettings {
  rules: ExpiryRules
  maxAttempts: number
  ladderMs: readonly number[]
}

export interface ReapedRow {
  id: string
  outcome: 'requeued' | 'failed'
  rule: ReapRule
  stage: string | null
  holder: string | null
  attempt: number
  dueAt: Date | null
}

export interface BatchChoice {
  limit: number
  /** Rows that broke their statement before; left out. */
  exclude: readonly string[]
  /** Only these rows: how a batch is bisected. */
  only: readonly string[] | null
  /** Leave the batch to another reaper that is at it right now. */
  yieldToOthers: boolean
  /** Not what ran out, but what is taken for another reason. */
  taken?: Taken
}

/** What a holder held when its process ended, and why it ended; or one attempt of one job whose lease a person ends. */
export type Taken =
  | { rule: 'worker_exit'; holder: string; cause: string }
  | { rule: 'lease_ended'; id: string; seen: Seen; actor: string; cause: string }

export const EVERY_DUE_ROW: BatchChoice = { limit: 1000, exclude: [], only: null, yieldToOthers: false }

/**
 * Races closed here: a heartbeat or finish that comes at the same moment (the row is locked, and judged on the version
 * that was locked); a second reaper (locked rows are passed over); a host transaction that holds a foreign-key lock
 * through an uncommitted event (`no key update` does not wait for it). Rows are matched by id from a materialised step
 * of at most 1000 by default: above some thousands the planner turns to a scan of the whole table.
 */
export async function reapExpired(
  db: Database,
  table: JobTable,
  settings: ReapSettings,
  choice: BatchChoice,
): Promise<ReapedRow[]> {
  const { dialect: d, profile } = table
  const names = profile.events?.names
  const requeue = sql`picked.lh_requeue`
  const attempt = sql`picked.lh_attempt`
  const { taken } = choice
  const cause = taken?.cause ?? null
  const actor = taken?.rule === 'lease_ended' ? taken.actor : null
  const reason = cause ?? profile.policy.orphanReason
  const [requeuedName, failedName] = actor
    ? [names?.operatorEndedLease, names?.operatorEndedLease]
    : [names?.reaperRequeued, names?.reaperFailed]
  return db.query(
    (run) => run<ReapedRow[]>`
      with picked as materialized (
        ${selectExpired(table, settings, choice)}
        for no key update of j ${taken ? sql`` : sql`skip locked`}
      ), moved as (
        update ${d.table} as j
        set ${d.set({
          status: sql`case when ${requeue} then ${d.status.queued} else ${d.status.failed} end`,
          holder: sql`null`,
          leaseExpiresAt: sql`null`,
          attempts: attempt,
          startedAt: sql`case when ${requeue} then null else ${d.read.startedAt} end`,
          nextRunAt: sql`case when ${requeue} then ${fromNow(backoffSec(attempt, settings.ladderMs))} else ${d.read.nextRunAt} end`,
          failCode: sql`case when ${requeue} then ${d.read.failCode}::text else ${taken?.rule ?? 'timeout'}::text end`,
          failReason: sql`case when ${requeue} then ${d.read.failReason}::text else coalesce(${reason}::text, picked.lh_rule) end`,
          finishedAt: sql`case when ${requeue} then null else clock_timestamp() end`,
        })}
        from picked
        where ${d.read.id} = picked.lh_id
          and ${d.isStill('processing')}
        returning picked.*, case when ${requeue} then ${d.read.nextRunAt} end as lh_due
      ), told as (
        ${d.tell({
          jobId: sql`moved.lh_id`,
          type: sql`event.type`,
          details: sql`jsonb_strip_nulls(jsonb_build_object(
            'reason', moved.lh_rule, 'attempt', moved.lh_attempt, 'holder', moved.lh_holder,
            'locked_by', moved.lh_holder, 'stage', moved.lh_stage, 'due', moved.lh_due, 'cause', ${cause}::text, 'actor', ${actor}::text))`,
          source: sql`
            from moved
            cross join lateral unnest(
              case when moved.lh_requeue then array[${requeuedName ?? ''}::text, ${names?.requeuedStale ?? ''}::text]
                else array[${failedName ?? ''}::text] end) with ordinality as event(type, place)
            order by moved.lh_id, event.place`,
        })}
      )
      select lh_id::text as id, case when lh_requeue then 'requeued' else 'failed' end as outcome, lh_rule as rule,
        lh_stage as stage, lh_holder as holder, lh_attempt::float8 as attempt, lh_due as "dueAt"
      from moved`,
  )
}

/** What a worker held when its process ended goes the way of the expired, at once and with the cause. Its parent saw it die. */
export function giveBack(
  db: Database,
  table: JobTable,
  settings: ReapSettings,
  exited: { holder: string; cause: string },
): Promise<ReapedRow[]> {
  return reapExpired(db, table, settings, {
    ...EVERY_DUE_ROW,
    limit: 10_000,
    taken: { rule: 'worker_exit', ...exited },
  })
}

/**
 * A person ends a lease: the job goes the way of the expired, at once. Races closed here: a heartbeat, a finish or a reap
 * at the same moment, and a second person (the row is locked, and judged as it is then); a claim since the person looked
 * (nothing moves when it is another attempt or another holder by now).
 */
export function endLease(
  db: Database,
  table: JobTable,
  settings: ReapSettings,
  ended: { id: string; seen: Seen; actor: string; cause: string },
): Promise<ReapedRow[]> {
  return reapExpired(db, table, settings, { ...EVERY_DUE_ROW, limit: 1, taken: { rule: 'lease_ended', ...ended } })
}

/** The same selection, nothing locked and nothing written: what a pass would do now, and by which rule. */
export function previewExpired(
  db: Database,
  table: JobTable,
  settings: ReapSettings,
  choice: BatchChoice,
): Promise<ReapedRow[]> {
  return db.query(
    (run) => run<ReapedRow[]>`
      select lh_id::text as id, case when lh_requeue then 'requeued' else 'failed' end as outcome, lh_rule as rule,
        lh_stage as stage, lh_holder as holder, lh_attempt::float8 as attempt, null::timestamptz as "dueAt"
      from (${selectExpired(table, settings, { ...choice, yieldToOthers: false })}) as picked`,
  )
}

/** What becomes of a processing job that is taken from its holder. The reaper and all who foretell what it does read it from here. */
export function fateOf(
  { dialect: d, profile }: JobTable,
  maxAttempts: number,
): { attempt: Fragment; isRequeued: Fragment } {
  // A claim of ours counted; a row without a lease may be held by a worker that never counts. With attempt 0 it surely is.
  const attempt =
    profile.policy.countAttempts === 'recovery'
      ? sql`(case when ${d.read.leaseExpiresAt} is null then least(${d.attempts}, 2147483646) + 1 else greatest(${d.attempts}, 1) end)`
      : sql`greatest(${d.attempts}, 1)`
  return {
    attempt,
    isRequeued: sql`(${profile.policy.onExpiry === 'requeue'}::boolean
        and ${attempt} < greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1))`,
  }
}

function selectExpired(table: JobTable, settings: ReapSettings, choice: BatchChoice): Fragment {
  const { dialect: d } = table
  const { attempt, isRequeued } = fateOf(table, settings.maxAttempts)
  return sql`
    select ${d.read.id} as lh_id, ${choice.taken ? sql`${choice.taken.rule}::text` : sql`ends.lh_rule`} as lh_rule, ${d.read.stage}::text as lh_stage, ${d.read.holder}::text as lh_holder,
      ${attempt} as lh_attempt, ${isRequeued} as lh_requeue
    from ${d.table} as j
    ${expiry(table, settings.rules)}
    where ${d.read.status} = ${d.status.processing}
      and ${choice.taken ? isTaken(d, choice.taken) : sql`ends.lh_at <= ${NOW}`}
      ${choice.exclude.length > 0 ? sql`and not (${d.read.id} = any(${list(choice.exclude)}))` : sql``}
      ${choice.only ? sql`and ${d.read.id} = any(${list(choice.only)})` : sql``}
      ${choice.yieldToOthers ? sql`and (select pg_try_advisory_xact_lock(${lockKey(table)}))` : sql``}
    order by ${d.read.leaseExpiresAt}
    limit ${choice.limit}`
}

function isTaken(d: JobTable['dialect'], taken: Taken): Fragment {
  return taken.rule === 'worker_exit'
    ? sql`${d.read.holder} = ${taken.holder}::text`
    : sql`${d.read.id} = ${taken.id} ${isAsSeen(d, taken.seen)}`
}

/** Gives a lease (or, without such a column, a sign of life) to rows in which nothing tells how old they are, so that they run out later. */
export async function grantMissingLeases(
  db: Database,
  table: JobTable,
  rules: ExpiryRules,
  limit: number,
): Promise<string[]> {
  const { dialect: d } = table
  const { leaseExpiresAt, heartbeatAt, startedAt } = table.profile.columns
  const sign = leaseExpiresAt
    ? d.set({ leaseExpiresAt: fromNow(sql`${rules.stages.defaultLeaseSec}::float8`) })
    : heartbeatAt
      ? d.set({ heartbeatAt: sql`clock_timestamp()` })
      : startedAt
        ? d.set({ startedAt: sql`clock_timestamp()` })
        : null
  if (!sign) return []
  const rows = await db.query(
    (run) => run<{ id: string }[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id
        from ${d.table} as j
        ${expiry(table, rules)}
        where ${d.read.status} = ${d.status.processing} and ends.lh_ungoverned
        limit ${limit}
        for no key update of j skip locked
      )
      update ${d.table} as j
      set ${sign}
      from picked
      where ${d.read.id} = picked.lh_id and ${d.isStill('processing')}
      returning ${d.read.id}::text as id`,
  )
  return rows.map((row) => row.id)
}

/** One reaper scans a table at a time. The lock lives as long as one statement, so nothing depends on a session. */
export function lockKey(table: JobTable): Fragment {
  return sql`hashtextextended(${`leasehold reaper ${table.name}`}::text, 0)`
}

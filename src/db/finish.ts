/** Processing → done, queued again, or failed: the holder ends its attempt. */
import { type Failure, RETRIES_EXHAUSTED } from '../job/failure.ts'
import type { Status } from '../job/status.ts'
import type { Database } from './client.ts'
import { backoffSec, fromNow } from './dialect.ts'
import type { Fence } from './heartbeat.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface FinishedRow {
  status: Extract<Status, 'done' | 'queued' | 'failed'>
  attempt: number
  stage: string | null
  dueAt: Date | null
}

/** The fence as SQL: the statement of a worker's own, or the parameters of a function. */
export interface FenceSql {
  id: Fragment
  holder: Fragment
  attempt: Fragment
}

/** A failure as SQL; all three are whole expressions. */
export interface FailureSql {
  code: Fragment
  reason: Fragment
  permanent: Fragment
}

export async function completeJob(
  db: Database,
  table: JobTable,
  fence: Fence,
  told: Record<string, unknown> = {},
): Promise<FinishedRow | null> {
  const statement = completeStatement(table, inSql(fence), sql`${sql.json(told as never)}::jsonb`)
  const [ended] = await db.query((run) => run<FinishedRow[]>`${statement}`)
  return ended ?? null
}

/** A permanent failure ends the job; a transient one queues it again behind its backoff while attempts are left. */
export async function endAttempt(
  db: Database,
  table: JobTable,
  fence: Fence,
  settings: { failure: Failure; maxAttempts: number; ladderMs: readonly number[] },
): Promise<FinishedRow | null> {
  const { code, reason, permanent } = settings.failure
  const failure = { code: sql`${code}::text`, reason: sql`${reason}::text`, permanent: sql`${permanent}::boolean` }
  const statement = failStatement(table, inSql(fence), { ...settings, failure })
  const [ended] = await db.query((run) => run<FinishedRow[]>`${statement}`)
  return ended ?? null
}

export function inSql({ id, holder, attempt }: Fence): FenceSql {
  return { id: sql`${id}`, holder: sql`${holder}::text`, attempt: sql`${attempt}::bigint` }
}

export function completeStatement(table: JobTable, fence: FenceSql, told: Fragment): Fragment {
  const { dialect: d, profile } = table
  return finishStatement(table, fence, {
    outcome: sql`'done'`,
    set: d.set({
      status: d.status.done,
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      progress: sql`100`,
      failCode: sql`null`,
      failReason: sql`null`,
      finishedAt: sql`clock_timestamp()`,
    }),
    eventType: sql`${profile.events?.names.done ?? ''}::text`,
    details: told,
  })
}

export function failStatement(
  table: JobTable,
  fence: FenceSql,
  settings: { failure: FailureSql; maxAttempts: number; ladderMs: readonly number[] },
): Fragment {
  const { dialect: d, profile } = table
  const { failure, maxAttempts, ladderMs } = settings
  const { code, reason, permanent } = failure
  const retries = sql`held.lh_retries`
  const names = profile.events?.names
  return finishStatement(table, fence, {
    decision: sql`not ${permanent}
      and ${d.attempts} < greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)`,
    outcome: sql`case when ${retries} then 'queued' else 'failed' end`,
    set: d.set({
      status: sql`case when ${retries} then ${d.status.queued} else ${d.status.failed} end`,
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      startedAt: sql`case when ${retries} then null else ${d.read.startedAt} end`,
      nextRunAt: sql`case when ${retries} then ${fromNow(backoffSec(d.attempts, ladderMs))} else ${d.read.nextRunAt} end`,
      failCode: sql`case when ${retries} or ${permanent} then ${code} else ${RETRIES_EXHAUSTED}::text end`,
      failReason: sql`case when ${retries} or ${permanent} then ${reason} else ${code} end`,
      finishedAt: sql`case when ${retries} then null else clock_timestamp() end`,
    }),
    eventType: sql`case when ended.lh_status = 'queued' then ${names?.retry ?? ''}::text else ${names?.failed ?? ''}::text end`,
    details: sql`jsonb_build_object('code', ${code}, 'reason', ${reason}, 'due', ended.lh_due)`,
  })
}

/** Races closed here: a zombie's finish, and a finish against a reap, a cancel or another finish: the fence is judged on the locked row. */
function finishStatement(
  { dialect: d }: JobTable,
  { id, holder, attempt }: FenceSql,
  change: { decision?: Fragment; outcome: Fragment; set: Fragment; eventType: Fragment; details: Fragment },
): Fragment {
  return sql`
      with held as materialized (
        select ${d.read.id} as lh_id, ${change.decision ?? sql`false`} as lh_retries
        from ${d.table} as j
        where ${d.read.id} = ${id}
          and ${d.isHeldBy(holder, attempt)}
        for no key update of j
      ), ended as (
        update ${d.table} as j
        set ${change.set}
        from held
        where ${d.read.id} = held.lh_id
          and ${d.isHeldBy(holder, attempt)}
        returning ${d.read.id} as lh_id, ${change.outcome} as lh_status, ${d.read.stage}::text as lh_stage,
          case when ${change.outcome} = 'queued' then ${d.read.nextRunAt} end as lh_due
      ), told as (
        ${d.tell({
          jobId: sql`ended.lh_id`,
          type: change.eventType,
          details: sql`jsonb_build_object('attempt', ${attempt}, 'holder', ${holder}) || jsonb_strip_nulls(${change.details})`,
          source: sql`from ended`,
        })}
      )
      select lh_status as status, ${attempt}::float8 as attempt, lh_stage as stage, lh_due as "dueAt" from ended`
}

/**
 * For a finish whose answer was lost: how did this very attempt end? `done` at our attempt can only be our own doing
 * (attempts rise only at a claim); for the other ends the event tells, because a reap looks the same in the row.
 */
export async function readOwnFinish(db: Database, table: JobTable, fence: Fence): Promise<FinishedRow | null> {
  const [row] = await db.query((run) => run<FinishedRow[]>`${ownFinishStatement(table, inSql(fence))}`)
  return row ?? null
}

export function ownFinishStatement({ dialect: d, profile }: JobTable, fence: FenceSql): Fragment {
  const { id, attempt } = fence
  const names = profile.events?.names
  const told = d.told({ id, types: names ? [names.failed, names.retry] : [], by: fence })
  return sql`
      select ended.status, ${attempt}::float8 as attempt, ${d.read.stage}::text as stage,
        case when ended.status = 'queued' and ${d.read.status} = ${d.status.queued} then ${d.read.nextRunAt} end as "dueAt"
      from ${d.table} as j
      cross join lateral (
        select case
          when ${d.read.status} = ${d.status.done} and ${d.read.attempts} = ${attempt} then 'done'
          else (select case when told.type = ${names?.retry ?? ''}::text then 'queued' else 'failed' end from (${told}) as told limit 1)
        end as status
      ) as ended
      where ${d.read.id} = ${id} and ended.status is not null`
}

/** What a holder writes while its attempt runs, and how it gives a job back: every write behind the fence. */
import type { Database } from './client.ts'
import { type FenceSql, inSql } from './finish.ts'
import type { Fence } from './heartbeat.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

/** Stores the percentage and tells it, in one statement. False when the fence did not hold: nothing was written. */
export async function writeProgress(
  db: Database,
  table: JobTable,
  fence: Fence,
  { pct, details = null }: { pct: number; details?: Record<string, unknown> | null },
): Promise<boolean> {
  const told = sql`${sql.json({ ...details, pct: Math.round(pct * 100) / 100 })}::jsonb`
  const statement = progressStatement(table, inSql(fence), sql`${pct}::float8`, told)
  return (await db.query((run) => run`${statement}`)).length > 0
}

export function progressStatement(table: JobTable, fence: FenceSql, pct: Fragment, details: Fragment): Fragment {
  const { dialect: d, profile } = table
  const progress = sql`least(greatest(${pct}, 0), 100)`
  const set = profile.columns.progress ? d.set({ progress }) : d.set({ holder: d.read.holder })
  return tellStatement(table, fence, {
    change: sql`update ${d.table} as j set ${set} from held where ${d.read.id} = held.lh_id returning ${d.read.id} as lh_id`,
    type: profile.events?.names.progress ?? 'progress',
    details,
  })
}

/** Tells something in the job's timeline. False when the fence did not hold: nothing was written. */
export async function tellEvent(
  db: Database,
  table: JobTable,
  fence: Fence,
  { type, details }: { type: string; details: Record<string, unknown> },
): Promise<boolean> {
  const told = sql`${sql.json(details as never)}::jsonb`
  const statement = tellStatement(table, inSql(fence), { change: sql`select lh_id from held`, type, details: told })
  return (await db.query((run) => run`${statement}`)).length > 0
}

/** Race closed here: a zombie's progress or event. The row is locked under the fence before anything is written. */
function tellStatement(
  { dialect: d }: JobTable,
  { id, holder, attempt }: FenceSql,
  { change, type, details }: { change: Fragment; type: string; details: Fragment },
): Fragment {
  return sql`
      with held as materialized (
        select ${d.read.id} as lh_id
        from ${d.table} as j
        where ${d.read.id} = ${id}
          and ${d.isHeldBy(holder, attempt)}
        for no key update of j
      ), changed as (
        ${change}
      ), told as (
        ${d.tell({
          jobId: sql`changed.lh_id`,
          type: sql`${type}::text`,
          details: sql`jsonb_build_object('attempt', ${attempt}, 'holder', ${holder}) || ${details}`,
          source: sql`from changed`,
        })}
      )
      select 1 as written from changed`
}

/** After this many free releases a job pays for its attempts again: a fleet that never stops restarting must not run it for ever. */
const FREE_RELEASES = 5

/**
 * Processing → queued at shutdown: due now, and the attempt is refunded by raising `max_attempts`. Race closed here: a
 * release against a reap or a newer attempt, by the fence on the locked row.
 */
export async function releaseJob(
  db: Database,
  { dialect: d, profile }: JobTable,
  { id, holder, attempt }: Fence,
  { maxAttempts }: { maxAttempts: number },
): Promise<'queued' | 'failed' | null> {
  const allowed = sql`coalesce(${d.read.maxAttempts}, ${maxAttempts})`
  const aborted = profile.events?.names.aborted ?? ''
  const names = profile.events?.names
  // Without events nobody counts the releases; then the attempts themselves are the limit.
  const released = names
    ? sql`(select count(*) from (${d.told({ id: sql`${id}`, types: [names.aborted] })}) as before)`
    : d.attempts
  const isFree = profile.columns.maxAttempts ? sql`${released} < ${FREE_RELEASES}` : sql`false`
  const [row] = await db.query(
    (run) => run<{ status: 'queued' | 'failed' }[]>`
      with held as materialized (
        select ${d.read.id} as lh_id, ${isFree} as lh_free, ${d.attempts} < greatest(${allowed}, 1) as lh_left
        from ${d.table} as j
        where ${d.read.id} = ${id}
          and ${d.isHeldBy(sql`${holder}::text`, sql`${attempt}::bigint`)}
        for no key update of j
      ), released as (
        update ${d.table} as j
        set ${d.set({
          status: sql`case when held.lh_free or held.lh_left then ${d.status.queued} else ${d.status.failed} end`,
          holder: sql`null`,
          leaseExpiresAt: sql`null`,
          startedAt: sql`null`,
          nextRunAt: sql`clock_timestamp()`,
          maxAttempts: sql`case when held.lh_free then least(greatest(${allowed}, ${d.attempts}), 2147483646) + 1 else ${d.read.maxAttempts} end`,
          finishedAt: sql`case when held.lh_free or held.lh_left then null else clock_timestamp() end`,
          failCode: sql`case when held.lh_free or held.lh_left then ${d.read.failCode}::text else 'RETRIES_EXHAUSTED' end`,
          failReason: sql`case when held.lh_free or held.lh_left then ${d.read.failReason}::text else ${aborted}::text end`,
        })}
        from held
        where ${d.read.id} = held.lh_id
        returning ${d.read.id} as lh_id, case when held.lh_free or held.lh_left then 'queued' else 'failed' end as lh_status, held.lh_free
      ), told as (
        ${d.tell({
          jobId: sql`released.lh_id`,
          type: sql`event.type`,
          details: sql`jsonb_build_object('attempt', ${attempt}::bigint, 'holder', ${holder}::text, 'reason', 'shutdown', 'refunded', released.lh_free)`,
          source: sql`
            from released
            cross join lateral unnest(
              case when released.lh_status = 'queued' then array[${aborted}::text]
                else array[${aborted}::text, ${names?.failed ?? ''}::text] end) with ordinality as event(type, place)
            order by event.place`,
        })}
      )
      select lh_status as status from released`,
  )
  return row?.status ?? null
}

/** How many jobs are due now, counted no further than `upTo`. */
export async function countDue(
  db: Database,
  { dialect: d }: JobTable,
  { upTo, maxAttempts }: { upTo: number; maxAttempts: number },
): Promise<number> {
  const [row] = await db.query(
    (run) => run<{ due: number }[]>`
      select count(*)::int as due from (
        select 1 from ${d.table} as j
        where ${d.read.status} = ${d.status.queued}
          and (${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= statement_timestamp())
          and ${d.attempts} < greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)
        limit ${upTo}) as waiting`,
  )
  return row?.due ?? 0
}

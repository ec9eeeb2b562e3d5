/** Jobs as a person looks at them: in our words, with the rule that decides about them and when. Reads only, and bounded. */
import type { Status } from '../job/status.ts'
import type { ReapRule } from '../job/recovery.ts'
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface JobView {
  table: string
  id: string
  /** In our words; null for a word that is none of ours. */
  status: Status | null
  /** As the table spells it. */
  word: string
  stage: string | null
  holder: string | null
  attempt: number
  maxAttempts: number
  progress: number | null
  /** All moments by the database's clock; null also for those that are no point in time (`infinity`). */
  now: Date
  leaseUntil: Date | null
  heartbeatAt: Date | null
  startedAt: Date | null
  dueAt: Date | null
  isDue: boolean
  failCode: string | null
  failReason: string | null
  /** When the reaper would take it if nothing happened, and by which rule; for a processing job. */
  endsAt: Date | null
  rule: ReapRule | null
}

export interface JobFilter {
  status?: Status | undefined
  stage?: string | undefined
  code?: string | undefined
  holder?: string | undefined
  /** Keyset paging: only ids after this one. */
  after?: string | undefined
  limit: number
  /** By id (the default), or by what is reaped next. */
  order?: 'id' | 'end'
}

export interface ViewSettings {
  rules: ExpiryRules
  maxAttempts: number
}

/** One job, or null when there is none. */
export async function viewJob(
  db: Database,
  table: JobTable,
  id: string,
  settings: ViewSettings,
): Promise<JobView | null> {
  const { dialect: d } = table
  const [view] = await readViews(db, table, settings, sql`${d.read.id} = ${id}`, sql``)
  return view ?? null
}

export function listJobs(db: Database, table: JobTable, filter: JobFilter, settings: ViewSettings): Promise<JobView[]> {
  const { dialect: d } = table
  const { status, stage, code, holder, after, limit, order = 'id' } = filter
  const which = sql`true
    ${status === undefined ? sql`` : sql`and ${d.read.status} = ${d.status[status]}`}
    ${stage === undefined ? sql`` : sql`and ${d.read.stage}::text = ${stage}`}
    ${code === undefined ? sql`` : sql`and ${d.read.failCode}::text = ${code}`}
    ${holder === undefined ? sql`` : sql`and ${d.read.holder}::text = ${holder}`}
    ${after === undefined ? sql`` : sql`and ${d.read.id} > ${after}::text::${d.idType}`}`
  const sorted = order === 'id' ? sql`order by ${d.read.id}` : sql`order by ends.lh_at nulls last, ${d.read.id}`
  return readViews(db, table, settings, which, sql`${sorted} limit ${limit}`)
}

export interface ToldEvent {
  at: string | null
  type: string
  details: Record<string, unknown>
}

/** The latest events of a job, oldest first. */
export async function readTimeline(
  db: Database,
  { dialect: d }: JobTable,
  { id, limit }: { id: string; limit: number },
): Promise<ToldEvent[]> {
  const rows = await db.query(
    (run) => run<ToldEvent[]>`
      select data ->> 'at' as at, coalesce(data ->> 'type', '') as type, coalesce(data -> 'details', '{}'::jsonb) as details
      from (${d.timeline(sql`${id}`)}) as told
      order by data ->> 'at' desc nulls last
      limit ${limit}`,
  )
  return rows.toReversed()
}

/** Why jobs failed, most first. */
export async function groupFailures(
  db: Database,
  { dialect: d }: JobTable,
  limit: number,
): Promise<{ code: string | null; stage: string | null; jobs: number }[]> {
  return db.query(
    (run) => run<{ code: string | null; stage: string | null; jobs: number }[]>`
      select code, stage, count(*)::int as jobs from (
        select ${d.read.failCode}::text as code, ${d.read.stage}::text as stage
        from ${d.table} as j
        where ${d.read.status} = ${d.status.failed}
        limit 100000) as dead
      group by code, stage order by jobs desc limit ${limit}`,
  )
}

function readViews(
  db: Database,
  table: JobTable,
  { rules, maxAttempts }: ViewSettings,
  which: Fragment,
  tail: Fragment,
): Promise<JobView[]> {
  const { dialect: d } = table
  const point = (time: Fragment): Fragment => sql`case when isfinite(${time}) then ${time} end`
  const isProcessing = sql`${d.read.status} = ${d.status.processing}`
  return db.query(
    (run) => run<JobView[]>`
      select ${table.name}::text as table, ${d.read.id}::text as id,
        case ${d.read.status} when ${d.status.queued} then 'queued' when ${d.status.processing} then 'processing'
          when ${d.status.done} then 'done' when ${d.status.failed} then 'failed' end as status,
        ${d.read.status}::text as word, left(${d.read.stage}::text, 200) as stage, left(${d.read.holder}::text, 200) as holder,
        ${d.attempts}::float8 as attempt,
        greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)::float8 as "maxAttempts",
        ${d.read.progress}::float8 as progress,
        ${NOW} as now,
        ${point(d.read.leaseExpiresAt)} as "leaseUntil", ${point(d.read.heartbeatAt)} as "heartbeatAt",
        ${point(d.read.startedAt)} as "startedAt", ${point(d.dueAt)} as "dueAt",
        (${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= ${NOW}) as "isDue",
        left(${d.read.failCode}::text, 200) as "failCode", left(${d.read.failReason}::text, 2000) as "failReason",
        case when ${isProcessing} then ${point(sql`ends.lh_at`)} end as "endsAt",
        case when ${isProcessing} and not ends.lh_ungoverned then ends.lh_rule end as rule
      from ${d.table} as j
      ${expiry(table, rules)}
      where ${which}
      ${tail}`,
  )
}

/** Jobs as a person looks at them: in our words, with the rule that decides about them and when. Reads only, and bounded. */
import type { Status } from '../job/status.ts'
import type { ReapRule } from '../job/recovery.ts'
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { type JobFilter, matching } from './job-filter.ts'
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
  expectedDurationMs: number | null
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
  /** Its time is up, but the database was away and its holder gets the chance to check in. */
  isSpared: boolean
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
  const [view] = await readViews(db, table, settings, sql`where ${table.dialect.read.id} = ${id}`)
  return view ?? null
}

/** Newest id first; `after` is the last id of the page before. */
export function listJobs(
  db: Database,
  table: JobTable,
  { filter, after, limit }: { filter: JobFilter; after: string | null; limit: number },
  settings: ViewSettings,
): Promise<JobView[]> {
  const { dialect: d } = table
  const page = after === null ? sql`` : sql`and ${d.read.id} < ${after}::text::${d.idType}`
  return readViews(
    db,
    table,
    settings,
    sql`where ${matching(d, filter)} ${page} order by ${d.read.id} desc limit ${limit}`,
  )
}

/** What runs, by what is reaped next. */
export function listLeases(
  db: Database,
  table: JobTable,
  { holder, limit }: { holder: string | null | undefined; limit: number },
  settings: ViewSettings,
): Promise<JobView[]> {
  const { dialect: d } = table
  return readViews(
    db,
    table,
    settings,
    sql`where ${matching(d, { status: 'processing', holder })}
      order by ends.lh_at nulls last, ${d.read.id} limit ${limit}`,
  )
}

/** How many jobs match, counted no further than `upTo`. */
export async function countJobs(
  db: Database,
  { dialect: d }: JobTable,
  filter: JobFilter,
  upTo: number,
): Promise<number> {
  const [row] = await db.query(
    (run) => run<{ found: number }[]>`
      select count(*)::int as found from (
        select 1 from ${d.table} as j where ${matching(d, filter)} limit ${upTo}) as matching`,
  )
  return row?.found ?? 0
}

export interface RowField {
  name: string
  /** As text, cut where it is long; null for NULL. */
  value: string | null
  isCut: boolean
}

const FIELD_LENGTH = 2000

/** Every column of a job as the table spells it. */
export function readFields(db: Database, { dialect: d }: JobTable, id: string): Promise<RowField[]> {
  return db.query(
    (run) => run<RowField[]>`
      select field.key as name, left(field.value #>> '{}', ${FIELD_LENGTH}) as value,
        coalesce(length(field.value #>> '{}') > ${FIELD_LENGTH}, false) as "isCut"
      from ${d.table} as j
      cross join lateral json_each(to_json(j)) with ordinality as field(key, value, place)
      where ${d.read.id} = ${id}
      order by field.place`,
  )
}

export interface FailureGroup {
  code: string | null
  stage: string | null
  jobs: number
}

/** Dead letters are counted no further than this, so that a look stays cheap on any table. */
export const GROUPED_AT_MOST = 100_000

/** Why jobs failed, most first. */
export function groupFailures(db: Database, { dialect: d }: JobTable, limit: number): Promise<FailureGroup[]> {
  return db.query(
    (run) => run<FailureGroup[]>`
      select left(code, 200) as code, left(stage, 200) as stage, count(*)::int as jobs from (
        select ${d.read.failCode}::text as code, ${d.read.stage}::text as stage
        from ${d.table} as j
        where ${d.read.status} = ${d.status.failed}
        limit ${GROUPED_AT_MOST}) as dead
      group by 1, 2 order by jobs desc, 1, 2 limit ${limit}`,
  )
}

export interface HolderView {
  /** Null for jobs that run and are held by nobody known. */
  holder: string | null
  jobs: number
  stages: (string | null)[]
  /** Seconds since any of its jobs beat; null when none ever did. */
  silentSec: number | null
  /** Seconds since the first of its running jobs began. */
  busySec: number | null
  /** Seconds until the first of its jobs is reaped if nothing happens. */
  endsInSec: number | null
  /** Jobs whose time is up already. */
  expired: number
}

/** Who works: holders of running jobs, those first whose jobs are reaped next. */
export function listHolders(
  db: Database,
  table: JobTable,
  limit: number,
  { rules }: ViewSettings,
): Promise<HolderView[]> {
  const { dialect: d } = table
  const since = (time: Fragment): Fragment => sql`extract(epoch from ${NOW} - ${time})::float8`
  return db.query(
    (run) => run<HolderView[]>`
      select left(${d.read.holder}::text, 200) as holder, count(*)::int as jobs,
        to_jsonb((array_agg(distinct left(${d.read.stage}::text, 200)))[1:20]) as stages,
        ${since(sql`max(${d.read.heartbeatAt}) filter (where isfinite(${d.read.heartbeatAt}))`)} as "silentSec",
        ${since(sql`min(${d.read.startedAt}) filter (where isfinite(${d.read.startedAt}))`)} as "busySec",
        -${since(sql`min(ends.lh_at) filter (where isfinite(ends.lh_at))`)} as "endsInSec",
        count(*) filter (where ends.lh_at <= ${NOW})::int as expired
      from ${d.table} as j
      ${expiry(table, rules)}
      where ${d.read.status} = ${d.status.processing}
      group by 1
      order by min(ends.lh_at) nulls last
      limit ${limit}`,
  )
}

function readViews(
  db: Database,
  table: JobTable,
  { rules, maxAttempts }: ViewSettings,
  which: Fragment,
): Promise<JobView[]> {
  const { dialect: d } = table
  const point = (time: Fragment): Fragment => sql`case when isfinite(${time}) then ${time} end`
  const isProcessing = sql`${d.read.status} = ${d.status.processing}`
  return db.query(
    (run) => run<JobView[]>`
      select ${table.name}::text as table, ${d.read.id}::text as id,
        case ${d.read.status} when ${d.status.queued} then 'queued' when ${d.status.processing} then 'processing'
          when ${d.status.done} then 'done' when ${d.status.failed} then 'failed' end as status,
        left(${d.read.status}::text, 200) as word, left(${d.read.stage}::text, 200) as stage, left(${d.read.holder}::text, 200) as holder,
        ${d.attempts}::float8 as attempt,
        greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)::float8 as "maxAttempts",
        ${d.read.progress}::float8 as progress, ${d.read.expectedDurationMs}::float8 as "expectedDurationMs",
        ${NOW} as now,
        ${point(d.read.leaseExpiresAt)} as "leaseUntil", ${point(d.read.heartbeatAt)} as "heartbeatAt",
        ${point(d.read.startedAt)} as "startedAt", ${point(d.dueAt)} as "dueAt",
        (${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= ${NOW}) as "isDue",
        left(${d.read.failCode}::text, 200) as "failCode", left(${d.read.failReason}::text, 2000) as "failReason",
        case when ${isProcessing} then ${point(sql`ends.lh_at`)} end as "endsAt",
        case when ${isProcessing} and not ends.lh_ungoverned then ends.lh_rule end as rule,
        coalesce(${isProcessing} and ends.lh_spared, false) as "isSpared"
      from ${d.table} as j
      ${expiry(table, rules)}
      ${which}`,
  )
}

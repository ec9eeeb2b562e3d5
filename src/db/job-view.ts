/** Jobs as a person looks at them: in our words, with the rule that decides about them and when. Reads only, and bounded. */
import type { Status } from '../job/status.ts'
import type { ReapRule } from '../job/recovery.ts'
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { type JobFilter, matching, SHOWN_LENGTH } from './job-filter.ts'
import { fateOf, type ReapedRow } from './reap.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface JobView {
  table: string
  id: string
  /** In our words; null for a word that is none of ours. */
  status: Status | null
  /** As the table spells it; `NULL` where there is none. */
  word: string
  stage: string | null
  holder: string | null
  attempt: number
  maxAttempts: number
  progress: number | null
  expectedDurationMs: number | null
  /** All moments by the database's clock; null also for those that are no date (`infinity`, the year 200000). */
  now: Date
  leaseUntil: Date | null
  /** It has a lease, but one further away than any we grant: it does not count. */
  isLeaseOdd: boolean
  heartbeatAt: Date | null
  startedAt: Date | null
  dueAt: Date | null
  /** When its status changed last; null where the table does not tell. */
  changedAt: Date | null
  isDue: boolean
  failCode: string | null
  failReason: string | null
  /** When the reaper would take it if nothing happened, and by which rule; for a processing job. Long ago is now. */
  endsAt: Date | null
  rule: ReapRule | null
  /** What the reaper, or the end of its lease by hand, makes of it, and the attempts it has had then. */
  outcome: ReapedRow['outcome'] | null
  attemptThen: number
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

/** A page that is full within so many of the next jobs by id is read from them alone. */
const NEAREST = 10_000
/** Where no index on the status helps, this many are looked at before all are. */
const NEAR = 100_000

/**
 * Newest id first; `after` is the last id of the page before. Most pages are full within the nearest jobs. What is rare
 * is looked for everywhere, by the index on its status where there is one, and put into order afterwards: a walk by id
 * over the whole table, which the planner believes in when rare rows stand far away, costs many times that.
 */
export async function listJobs(
  db: Database,
  table: JobTable,
  { filter, after, limit }: { filter: JobFilter; after: string | null; limit: number },
  settings: ViewSettings,
): Promise<JobView[]> {
  const { dialect: d } = table
  const rest = after === null ? sql`true` : sql`${d.read.id} < ${after}::text::${d.idType}`
  const newestFirst = sql`order by ${d.read.id} desc limit ${limit}`
  const hasIndex = filter.status !== undefined && filter.status !== 'done'
  for (const many of hasIndex ? [NEAREST] : [NEAREST, NEAR]) {
    const near = sql`(select * from ${d.table} as j where ${rest} order by ${d.read.id} desc limit ${many})`
    const page = await readViews(db, table, settings, sql`where ${matching(d, filter)} ${newestFirst}`, near)
    if (page.length === limit || isEmpty(filter)) return page
  }
  const ids = sql`
    with found as materialized (
      select ${d.read.id} as lh_id from ${d.table} as j where ${rest} and ${matching(d, filter)}
    )
    select lh_id from found order by lh_id desc limit ${limit}`
  return readViews(db, table, settings, sql`where ${d.read.id} = any(array(${ids})) ${newestFirst}`)
}

function isEmpty(filter: JobFilter): boolean {
  return Object.values(filter).every((wanted) => wanted === undefined)
}

/** The ids of jobs that match, no more than `limit`, in no order. */
export async function listIds(
  db: Database,
  { dialect: d }: JobTable,
  filter: JobFilter,
  limit: number,
): Promise<string[]> {
  const rows = await db.query(
    (run) => run<{ id: string }[]>`
      select ${d.read.id}::text as id from ${d.table} as j where ${matching(d, filter)} limit ${limit}`,
  )
  return rows.map(({ id }) => id)
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
      select field.name, left(field.value, ${FIELD_LENGTH}) as value,
        coalesce(length(field.value) > ${FIELD_LENGTH}, false) as "isCut"
      from ${d.table} as j
      cross join lateral ${d.everyColumn}
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
      select nullif(left(code, ${SHOWN_LENGTH}), '') as code, nullif(left(stage, ${SHOWN_LENGTH}), '') as stage, count(*)::int as jobs from (
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
      select ${shown(d.read.holder)} as holder, count(*)::int as jobs,
        to_jsonb((array_agg(distinct ${shown(d.read.stage)}))[1:20]) as stages,
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
  from: Fragment = table.dialect.table,
): Promise<JobView[]> {
  const { dialect: d } = table
  const fate = fateOf(table, maxAttempts)
  const lease = d.read.leaseExpiresAt
  const whenProcessing = (value: Fragment): Fragment =>
    sql`case when ${d.read.status} = ${d.status.processing} then ${value} end`
  return db.query(
    (run) => run<JobView[]>`
      select ${table.name}::text as table, ${d.read.id}::text as id,
        case ${d.read.status} when ${d.status.queued} then 'queued' when ${d.status.processing} then 'processing'
          when ${d.status.done} then 'done' when ${d.status.failed} then 'failed' end as status,
        coalesce(${shown(d.read.status)}, 'NULL') as word, ${shown(d.read.stage)} as stage, ${shown(d.read.holder)} as holder,
        ${d.attempts}::float8 as attempt,
        greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)::float8 as "maxAttempts",
        case when ${d.read.progress} between 0 and 100 then ${d.read.progress}::float8 end as progress,
        ${d.read.expectedDurationMs}::float8 as "expectedDurationMs",
        ${NOW} as now,
        ${point(lease)} as "leaseUntil", coalesce(${lease} is not null and row_says.lease is null, false) as "isLeaseOdd",
        ${point(d.read.heartbeatAt)} as "heartbeatAt",
        ${point(d.read.startedAt)} as "startedAt", ${point(d.dueAt)} as "dueAt",
        ${point(d.changedAt)} as "changedAt",
        (${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= ${NOW}) as "isDue",
        ${shown(d.read.failCode)} as "failCode", left(${d.read.failReason}::text, ${FIELD_LENGTH}) as "failReason",
        ${whenProcessing(sql`case when ends.lh_at < ${EARLIEST} then ${NOW} else ${point(sql`ends.lh_at`)} end`)} as "endsAt",
        ${whenProcessing(sql`case when not ends.lh_ungoverned then ends.lh_rule end`)} as rule,
        ${whenProcessing(sql`case when ${fate.isRequeued} then 'requeued' else 'failed' end`)} as outcome,
        ${fate.attempt}::float8 as "attemptThen",
        coalesce(${whenProcessing(sql`ends.lh_spared`)}, false) as "isSpared"
      from ${from} as j
      ${expiry(table, rules)}
      ${which}`,
  )
}

/** Texts of a row may be of any length; nobody reads 5 MB. */
function shown(text: Fragment): Fragment {
  return sql`left(${text}::text, ${SHOWN_LENGTH})`
}

/** What lies outside of these is no date that anybody meant, and some of it none that JavaScript knows. */
const EARLIEST = sql`'1000-01-01T00:00:00Z'::timestamptz`
const LATEST = sql`'9999-12-31T00:00:00Z'::timestamptz`

function point(time: Fragment): Fragment {
  return sql`case when ${time} between ${EARLIEST} and ${LATEST} then ${time} end`
}

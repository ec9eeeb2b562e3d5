/** Queued → processing. One statement: pick, take, tell. */
import type { StagePolicy } from '../job/stage.ts'
import type { Database } from './client.ts'
import { byStage, fromNow, NOW } from './dialect.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface ClaimedRow {
  id: string
  attempt: number
  stage: string | null
  until: Date
  leaseSec: number
  /** The whole row as it is after the claim, in the table's own spelling. */
  row: Record<string, unknown>
}

export interface ClaimSettings {
  holder: string
  stages: StagePolicy
  maxAttempts: number
}

/** Takes up to `limit` due jobs, oldest due first; with `ids`, only of these. */
export function claimDueJobs(
  db: Database,
  table: JobTable,
  settings: ClaimSettings & {
    limit: number
    onlyStages: string[] | null
    exceptStages?: string[] | null
    ids?: readonly string[] | null
  },
): Promise<ClaimedRow[]> {
  const { dialect: d } = table
  const { onlyStages, exceptStages, ids } = settings
  const idFilter = ids ? sql`and ${d.read.id} = any(${list(ids)})` : sql``
  const stageFilter = onlyStages
    ? sql`and ${d.read.stage}::text = any(${list(onlyStages)}::text[])`
    : exceptStages
      ? sql`and (${d.read.stage} is null or ${d.read.stage}::text <> all(${list(exceptStages)}::text[]))`
      : sql``
  const which = sql`${idFilter} ${stageFilter} order by ${d.dueAt} nulls first limit ${settings.limit}`
  const leaseSec = byStage(d.read.stage, settings.stages.leaseSec, settings.stages.defaultLeaseSec)
  return claim(db, table, settings, which, leaseSec)
}

/** Takes one job by its id, if it is queued, due and has attempts left. */
export async function claimJobById(
  db: Database,
  table: JobTable,
  settings: ClaimSettings & { id: string; leaseSec: number | null },
): Promise<ClaimedRow | null> {
  const { dialect: d } = table
  const which = sql`and ${d.read.id} = ${settings.id}`
  const leaseSec =
    settings.leaseSec === null
      ? byStage(d.read.stage, settings.stages.leaseSec, settings.stages.defaultLeaseSec)
      : sql`${settings.leaseSec}::float8`
  const [claimed] = await claim(db, table, settings, which, leaseSec)
  return claimed ?? null
}

/**
 * Races closed here: two claims of one job (the row is locked before it is changed, and a locked row is passed over);
 * a claim before its time (the due time is judged on the locked version); more claims than asked for (the limit is
 * applied in a materialised step, whatever the plan); a lease that is short because of a wait (its end is computed
 * after the lock is held).
 */
export function claimStatement(
  { dialect: d, profile }: JobTable,
  { holder, maxAttempts }: { holder: Fragment; maxAttempts: number },
  which: Fragment,
  leaseSec: Fragment,
): Fragment {
  return sql`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${leaseSec} as lh_lease_sec
        from ${d.table} as j
        where ${d.read.status} = ${d.status.queued}
          and (${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= ${NOW})
          and ${d.attempts} < greatest(coalesce(${d.read.maxAttempts}, ${maxAttempts}), 1)
          ${which}
        for no key update of j skip locked
      ), claimed as (
        update ${d.table} as j
        set ${d.set({
          status: d.status.processing,
          holder: sql`${holder}::text`,
          leaseExpiresAt: fromNow(sql`picked.lh_lease_sec`),
          heartbeatAt: sql`clock_timestamp()`,
          startedAt: sql`clock_timestamp()`,
          attempts: sql`${d.attempts} + 1`,
          progress: sql`0`,
          finishedAt: sql`null`,
        })}
        from picked
        where ${d.read.id} = picked.lh_id
          and ${d.isStill('queued')}
        returning j.*,
          ${d.read.id} as lh_id, ${d.attempts}::float8 as lh_attempt, ${d.read.stage}::text as lh_stage,
          ${d.read.leaseExpiresAt} as lh_until, picked.lh_lease_sec::float8 as lh_lease_sec, ${d.dueAt} as lh_due
      ), told as (
        ${d.tell({
          jobId: sql`claimed.lh_id`,
          type: sql`${profile.events?.names.processing ?? ''}::text`,
          details: sql`jsonb_build_object('attempt', claimed.lh_attempt::bigint, 'holder', ${holder}::text, 'stage', claimed.lh_stage)`,
          source: sql`from claimed order by claimed.lh_id`,
        })}
      )`
}

async function claim(
  db: Database,
  table: JobTable,
  { holder, maxAttempts }: ClaimSettings,
  which: Fragment,
  leaseSec: Fragment,
): Promise<ClaimedRow[]> {
  const rows = await db.query(
    (run) => run`
      ${claimStatement(table, { holder: sql`${holder}`, maxAttempts }, which, leaseSec)}
      select claimed.*, claimed.lh_id::text as lh_id_text
      from claimed
      order by claimed.lh_due nulls first`,
  )
  return rows.map(toClaimedRow)
}

/** Our own columns carry a prefix that no table of a team has; the rest is the job's row, with the driver's own types. */
function toClaimedRow(columns: Record<string, unknown>): ClaimedRow {
  const row = Object.fromEntries(Object.entries(columns).filter(([name]) => !name.startsWith('lh_')))
  return {
    id: columns.lh_id_text as string,
    attempt: columns.lh_attempt as number,
    stage: columns.lh_stage as string | null,
    until: columns.lh_until as Date,
    leaseSec: columns.lh_lease_sec as number,
    row,
  }
}

export interface UnclaimedState {
  status: string
  isQueued: boolean
  isDue: boolean
  hasAttemptsLeft: boolean
  hasLiveLease: boolean
  holder: string | null
  dueAt: Date | null
}

/** Why a job could not be claimed, or null when there is no such job. */
export async function readUnclaimed(
  db: Database,
  { dialect: d }: JobTable,
  job: { id: string; maxAttempts: number },
): Promise<UnclaimedState | null> {
  const [state] = await db.query(
    (run) => run<UnclaimedState[]>`
      select ${d.read.status}::text as status,
        ${d.read.status} = ${d.status.queued} as "isQueued",
        ${d.read.nextRunAt} is null or ${d.read.nextRunAt} <= ${NOW} as "isDue",
        ${d.attempts} < greatest(coalesce(${d.read.maxAttempts}, ${job.maxAttempts}), 1) as "hasAttemptsLeft",
        ${d.read.status} = ${d.status.processing} and coalesce(${d.read.leaseExpiresAt} > ${NOW}, false) as "hasLiveLease",
        ${d.read.holder}::text as holder,
        ${d.read.nextRunAt} as "dueAt"
      from ${d.table} as j
      where ${d.read.id} = ${job.id}`,
  )
  return state ?? null
}

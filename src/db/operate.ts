/** What a person may do to a job by hand: retry it, cancel it. Each with who did it and why, in its event. */
import type { Status } from '../job/status.ts'
import type { Database } from './client.ts'
import { isAsSeen, type JobFilter, matching, type Seen } from './job-filter.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'
import { isDue } from './undispatched.ts'

export interface Deed {
  /** Who does it. */
  actor: string
  /** Why, in their own words. */
  reason: string
}

/** Which jobs are meant: one as it was seen, or of many named by their ids those that still match. */
export type Target = { id: string; seen: Seen } | { ids: readonly string[]; filter: JobFilter }

export interface OperatedRow {
  id: string
  dueAt: Date | null
}

type Operable = Extract<Status, 'queued' | 'processing' | 'failed'>

/**
 * Failed → queued, or queued and waiting → due now. The attempts stay as they are; the maximum goes up by what one more
 * run takes. One of many is retried only when it has failed; one that waits is named by its id.
 *
 * Races closed here: a second retry, a claim or a cancel at the same moment (the row is locked, and judged as it is
 * then); a job that changed since the person looked (status, attempt and holder are part of the guard); of many, one
 * that somebody else is at (it is passed over).
 */
export function retryJobs(
  db: Database,
  table: JobTable,
  target: Target,
  { maxAttempts, ...deed }: Deed & { maxAttempts: number },
): Promise<OperatedRow[]> {
  const { dialect: d, profile } = table
  const allowed = sql`coalesce(${d.read.maxAttempts}, ${maxAttempts})`
  return operate(db, table, target, deed, {
    from: 'id' in target ? ['failed', 'queued'] : ['failed'],
    // Without a column for the maximum there is nothing to raise, and a job that nobody can claim must not look retried.
    unless: profile.columns.maxAttempts ? sql`false` : sql`${d.attempts} >= greatest(${maxAttempts}, 1)`,
    set: d.set({
      status: d.status.queued,
      // A worker of the team's own may have left them behind when it failed the job.
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      // What is due already keeps its place in the queue.
      nextRunAt: sql`case when ${d.isStill('queued')} and ${isDue(table, maxAttempts)} then ${d.read.nextRunAt} else clock_timestamp() end`,
      startedAt: sql`null`,
      finishedAt: sql`null`,
      maxAttempts: sql`greatest(${allowed}, picked.lh_attempt + 1)`,
    }),
    event: profile.events?.names.operatorRetry ?? '',
    told: sql`'max_attempts', moved.lh_allowed`,
  })
}

/**
 * Queued or processing → failed. A running worker learns it at its next heartbeat, and its finish is refused: its fence
 * asks for a job that is processing. One of many is cancelled only while it waits; one that runs is named by its id.
 *
 * Races closed here: those of a retry, and a heartbeat, a finish or a reap at the same moment (whoever locks the row
 * first wins, and the other one changes nothing).
 */
export function cancelJobs(db: Database, table: JobTable, target: Target, deed: Deed): Promise<OperatedRow[]> {
  const { dialect: d, profile } = table
  // Where no column takes the code, the reason has to say it.
  const reason = profile.columns.failCode ? deed.reason : `${CANCELLED}: ${deed.reason}`
  return operate(db, table, target, deed, {
    from: 'id' in target ? ['queued', 'processing'] : ['queued'],
    unless: sql`false`,
    set: d.set({
      status: d.status.failed,
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      failCode: sql`${CANCELLED}::text`,
      failReason: sql`${reason}::text`,
      finishedAt: sql`clock_timestamp()`,
    }),
    event: profile.events?.names.operatorCancel ?? '',
    told: sql`'code', ${CANCELLED}::text`,
  })
}

const CANCELLED = 'cancelled'

interface Change {
  from: readonly Operable[]
  unless: Fragment
  set: Fragment
  event: string
  /** What its event tells beyond attempt, holder, actor and reason. */
  told: Fragment
}

function operate(db: Database, table: JobTable, target: Target, deed: Deed, change: Change): Promise<OperatedRow[]> {
  const { dialect: d } = table
  const still = change.from.map(d.isStill).reduce((all, each) => sql`${all} or ${each}`)
  return db.query(
    (run) => run<OperatedRow[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.attempts} as lh_attempt, ${d.read.holder}::text as lh_holder
        from ${d.table} as j
        where ${which(d, target)} and (${still}) and not (${change.unless})
        for no key update of j ${'id' in target ? sql`` : sql`skip locked`}
      ), moved as (
        update ${d.table} as j
        set ${change.set}
        from picked
        where ${d.read.id} = picked.lh_id
          and (${still})
        returning picked.*, ${d.read.maxAttempts} as lh_allowed, ${d.read.nextRunAt} as lh_due
      ), told as (
        ${d.tell({
          jobId: sql`moved.lh_id`,
          type: sql`${change.event}::text`,
          details: sql`jsonb_strip_nulls(jsonb_build_object('attempt', moved.lh_attempt, 'holder', moved.lh_holder,
            'actor', ${deed.actor}::text, 'reason', ${deed.reason}::text, ${change.told}))`,
          source: sql`from moved order by moved.lh_id`,
        })}
      )
      select lh_id::text as id, lh_due as "dueAt" from moved`,
  )
}

/** A row is found by its id, and judged by a status that no partial index serves; the filter's own is in `still`. */
function which(d: JobTable['dialect'], target: Target): Fragment {
  return 'id' in target
    ? sql`${d.read.id} = ${target.id} ${isAsSeen(d, target.seen)}`
    : sql`${d.read.id} = any(${list(target.ids)}) and ${matching(d, { ...target.filter, status: undefined })}`
}

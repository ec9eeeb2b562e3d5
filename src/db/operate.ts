/** What a person may do to a job by hand: retry it, cancel it. Each with who did it and why, in its event. */
import type { Status } from '../job/status.ts'
import type { Database } from './client.ts'
import { type JobFilter, matching } from './job-filter.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface Deed {
  /** Who does it. */
  actor: string
  /** Why, in their own words. */
  reason: string
}

/** What the person saw when they decided; a job that has changed since is left alone. */
export interface Seen {
  status: Status
  attempt: number
}

/** Which jobs are meant: one by its id, or all that match, so many at a time. */
export type Target = { id: string; seen?: Seen | undefined } | { filter: JobFilter; limit: number }

export interface OperatedRow {
  id: string
  dueAt: Date | null
}

type Operable = Extract<Status, 'queued' | 'processing' | 'failed'>

/**
 * Failed → queued, or queued and waiting → due now. The attempts stay as they are; the maximum goes up by what one more
 * run takes. Race closed here: a second retry, a claim or a cancel at the same moment (the row is locked, and judged as
 * it is then). All that match means all that failed; one that waits is named by its id.
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
    unless: profile.columns.maxAttempts ? sql`false` : sql`${d.attempts} >= ${maxAttempts}`,
    set: d.set({
      status: d.status.queued,
      nextRunAt: sql`clock_timestamp()`,
      startedAt: sql`null`,
      finishedAt: sql`null`,
      maxAttempts: sql`greatest(${allowed}, least(picked.lh_attempt, 2147483646) + 1)`,
    }),
    event: profile.events?.names.operatorRetry ?? '',
  })
}

/**
 * Queued or processing → failed. A running worker learns it at its next heartbeat, and its finish is refused. The same
 * race is closed the same way. All that match means all that wait: what runs is named by its id.
 */
export function cancelJobs(db: Database, table: JobTable, target: Target, deed: Deed): Promise<OperatedRow[]> {
  const { dialect: d, profile } = table
  return operate(db, table, target, deed, {
    from: 'id' in target ? ['queued', 'processing'] : ['queued'],
    unless: sql`false`,
    set: d.set({
      status: d.status.failed,
      holder: sql`null`,
      leaseExpiresAt: sql`null`,
      failCode: sql`'cancelled'::text`,
      failReason: sql`${deed.reason}::text`,
      finishedAt: sql`clock_timestamp()`,
    }),
    event: profile.events?.names.operatorCancel ?? '',
  })
}

interface Change {
  from: readonly Operable[]
  unless: Fragment
  set: Fragment
  event: string
}

function operate(db: Database, table: JobTable, target: Target, deed: Deed, change: Change): Promise<OperatedRow[]> {
  const { dialect: d } = table
  return db.query(
    (run) => run<OperatedRow[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.attempts} as lh_attempt
        from ${d.table} as j
        where ${which(d, target, change.from)} and not (${change.unless})
        ${'id' in target ? sql`` : sql`limit ${target.limit}`}
        for no key update of j ${'id' in target ? sql`` : sql`skip locked`}
      ), moved as (
        update ${d.table} as j
        set ${change.set}
        from picked
        where ${d.read.id} = picked.lh_id
          and (${anyStill(d, change.from)})
        returning picked.*, ${d.read.nextRunAt} as lh_due
      ), told as (
        ${d.tell({
          jobId: sql`moved.lh_id`,
          type: sql`${change.event}::text`,
          details: sql`jsonb_build_object('attempt', moved.lh_attempt, 'actor', ${deed.actor}::text, 'reason', ${deed.reason}::text)`,
          source: sql`from moved order by moved.lh_id`,
        })}
      )
      select lh_id::text as id, lh_due as "dueAt" from moved`,
  )
}

type Parts = JobTable['dialect']

/** One row is judged by its id; of many, the partial index on their status finds them. */
function which(d: Parts, target: Target, from: readonly Operable[]): Fragment {
  if (!('id' in target)) return matching(d, { ...target.filter, status: from[0] })
  const { id, seen } = target
  const isAsSeen = seen ? sql`and ${d.isStill(seen.status)} and ${d.attempts} = ${seen.attempt}` : sql``
  return sql`${d.read.id} = ${id} and (${anyStill(d, from)}) ${isAsSeen}`
}

function anyStill(d: Parts, states: readonly Operable[]): Fragment {
  return states.map(d.isStill).reduce((all, each) => sql`${all} or ${each}`)
}

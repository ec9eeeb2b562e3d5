/** What a person may do to a job by hand: retry it, cancel it, end its lease. Each with who did it and why, in its event. */
import type { Database } from './client.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface Deed {
  /** Who does it. */
  actor: string
  /** Why, in their own words. */
  reason: string
}

/** Which jobs are meant: some by id, or all that match. */
export type Target =
  | { ids: readonly string[]; seen?: Seen | undefined }
  | { stage?: string | undefined; code?: string | undefined; limit: number }

/** What the person saw when they decided; a job that has changed since is left alone. */
export interface Seen {
  status: string
  attempt: number
}

/**
 * Failed → queued, or queued and waiting → due now. The attempts stay as they are; the maximum goes up by what one more run
 * takes. Race closed here: a second retry, a claim or a cancel at the same moment (the row is locked, and judged as it is then).
 */
export async function retryJobs(
  db: Database,
  { dialect: d, profile }: JobTable,
  target: Target,
  { actor, reason, maxAttempts }: Deed & { maxAttempts: number },
): Promise<string[]> {
  const allowed = sql`coalesce(${d.read.maxAttempts}, ${maxAttempts})`
  // Without a column for the maximum there is nothing to raise, and a job that nobody can claim must not look retried.
  const canRun = profile.columns.maxAttempts ? sql`true` : sql`${d.attempts} < ${maxAttempts}`
  // All that match means all that failed; one that waits is named by its id.
  const states = 'ids' in target ? (['failed', 'queued'] as const) : (['failed'] as const)
  const rows = await db.query(
    (run) => run<{ id: string }[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.attempts} as lh_attempt
        from ${d.table} as j
        where ${isOneOf(d, states)} and ${matches(d, target)} and ${canRun}
        ${limitOf(target)}
        for no key update of j
      ), moved as (
        update ${d.table} as j
        set ${d.set({
          status: d.status.queued,
          nextRunAt: sql`clock_timestamp()`,
          startedAt: sql`null`,
          finishedAt: sql`null`,
          maxAttempts: sql`greatest(${allowed}, least(picked.lh_attempt, 2147483646) + 1)`,
        })}
        from picked
        where ${d.read.id} = picked.lh_id
        returning picked.*
      ), told as (${tellDeed(d, 'operator:retry', { actor, reason })})
      select lh_id::text as id from moved`,
  )
  return rows.map(({ id }) => id)
}

/** Queued or processing → failed. A running worker loses its lease by it. The same race is closed the same way. */
export async function cancelJobs(
  db: Database,
  { dialect: d }: JobTable,
  target: Target,
  { actor, reason }: Deed,
): Promise<string[]> {
  const states = 'ids' in target ? (['queued', 'processing'] as const) : (['queued'] as const)
  const rows = await db.query(
    (run) => run<{ id: string }[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.attempts} as lh_attempt
        from ${d.table} as j
        where ${isOneOf(d, states)} and ${matches(d, target)}
        ${limitOf(target)}
        for no key update of j
      ), moved as (
        update ${d.table} as j
        set ${d.set({
          status: d.status.failed,
          holder: sql`null`,
          leaseExpiresAt: sql`null`,
          failCode: sql`'cancelled'::text`,
          failReason: sql`${reason}::text`,
          finishedAt: sql`clock_timestamp()`,
        })}
        from picked
        where ${d.read.id} = picked.lh_id
        returning picked.*
      ), told as (${tellDeed(d, 'operator:cancel', { actor, reason })})
      select lh_id::text as id from moved`,
  )
  return rows.map(({ id }) => id)
}

/** The lease ends now; the reaper does the rest by its own rules. Race closed here: a beat that renews it (the row is locked). */
export async function endLease(
  db: Database,
  { dialect: d, profile }: JobTable,
  target: { ids: readonly string[]; seen?: Seen | undefined },
  { actor, reason }: Deed,
): Promise<string[]> {
  if (profile.columns.leaseExpiresAt === null) return []
  const rows = await db.query(
    (run) => run<{ id: string }[]>`
      with picked as materialized (
        select ${d.read.id} as lh_id, ${d.attempts} as lh_attempt
        from ${d.table} as j
        where ${d.isStill('processing')} and ${matches(d, target)}
        for no key update of j
      ), moved as (
        update ${d.table} as j
        set ${d.set({
          // The holder's next beat must not bring it back to life: without a holder the fence is closed.
          holder: sql`null`,
          leaseExpiresAt: sql`clock_timestamp()`,
        })}
        from picked
        where ${d.read.id} = picked.lh_id
        returning picked.*
      ), told as (${tellDeed(d, 'operator:lease_ended', { actor, reason })})
      select lh_id::text as id from moved`,
  )
  return rows.map(({ id }) => id)
}

/** How many jobs a bulk action means, counted no further than `upTo`. */
export async function countMatching(
  db: Database,
  { dialect: d }: JobTable,
  status: 'failed' | 'queued',
  target: Target,
  upTo: number,
): Promise<number> {
  const [row] = await db.query(
    (run) => run<{ found: number }[]>`
      select count(*)::int as found from (
        select 1 from ${d.table} as j
        where ${d.read.status} = ${d.status[status]} and ${matches(d, target)}
        limit ${upTo}) as matching`,
  )
  return row?.found ?? 0
}

type Parts = JobTable['dialect']

function isOneOf(d: Parts, states: readonly ('queued' | 'processing' | 'failed')[]): Fragment {
  const [first = 'failed', second] = states
  return second ? sql`(${d.isStill(first)} or ${d.isStill(second)})` : sql`${d.read.status} = ${d.status[first]}`
}

function matches(d: Parts, target: Target): Fragment {
  if ('ids' in target) {
    const { ids, seen } = target
    const isAsSeen = seen ? sql`and ${d.read.status}::text = ${seen.status} and ${d.attempts} = ${seen.attempt}` : sql``
    return sql`${d.read.id} = any(${list(ids)}) ${isAsSeen}`
  }
  const { stage, code } = target
  return sql`true
    ${stage === undefined ? sql`` : sql`and ${d.read.stage}::text = ${stage}`}
    ${code === undefined ? sql`` : sql`and ${d.read.failCode}::text = ${code}`}`
}

function limitOf(target: Target): Fragment {
  return 'ids' in target ? sql`` : sql`limit ${target.limit}`
}

function tellDeed(d: Parts, type: string, { actor, reason }: Deed): Fragment {
  return d.tell({
    jobId: sql`moved.lh_id`,
    type: sql`${type}::text`,
    details: sql`jsonb_build_object('attempt', moved.lh_attempt, 'actor', ${actor}::text, 'reason', ${reason}::text)`,
    source: sql`from moved order by moved.lh_id`,
  })
}

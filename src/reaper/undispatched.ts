/** What becomes of jobs that are due and that nobody took: told, offered again, or given up, as their table's policy says. */
import { describeError, mayBeOneRow } from '../db/errors.ts'
import { retryLostRaces } from '../db/retry.ts'
import type { JobTable } from '../db/table.ts'
import { giveUpUndispatched, offerAgain, type UndispatchedRow } from '../db/undispatched.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import type { Isolation } from './isolation.ts'
import type { PassContext } from './reap.ts'

type OrphanPolicy = 'report' | 'republish' | 'fail'

export interface Lookout {
  /** How long a job may be due before it counts as lost on its way. */
  orphanSec: number
  /** Jobs offered again a moment ago, for tables without a due time to remember it by. */
  offered: Isolation
  /** Whether the last look had something to report: one line per episode. */
  hasReported: boolean
}

/** Without a dispatcher nobody can be offered a job: workers poll, and a long wait is only worth telling. */
export function orphanPolicy(wanted: OrphanPolicy | null, dispatch: Dispatcher | undefined): OrphanPolicy {
  if (wanted === 'fail' || wanted === 'report') return wanted
  return dispatch ? 'republish' : 'report'
}

/** Answers whether anything was moved. A row that breaks here keeps its place in the queue; the pass goes on. */
export async function rescueUndispatched(
  table: JobTable,
  waiting: number,
  lookout: Lookout,
  context: PassContext,
): Promise<boolean> {
  const policy = orphanPolicy(table.profile.policy.queuedOrphans, context.dispatch)
  if (policy === 'report' || waiting === 0) {
    report(table, waiting, lookout, context)
    return false
  }
  try {
    const rows = policy === 'fail' ? await giveUp(table, lookout, context) : await offer(table, lookout, context)
    return rows.length > 0
  } catch (error) {
    if (!mayBeOneRow(error)) throw error
    context.log.error({ table: table.name, error: describeError(error) }, 'undispatched jobs could not be moved')
    return false
  }
}

function report(table: JobTable, waiting: number, lookout: Lookout, { log }: PassContext): void {
  if (waiting > 0 && !lookout.hasReported) {
    const { orphanSec } = lookout
    log.warn({ table: table.name, jobs: waiting, orphanSec }, 'jobs are due and nobody takes them')
  }
  lookout.hasReported = waiting > 0
}

async function offer(table: JobTable, lookout: Lookout, context: PassContext): Promise<UndispatchedRow[]> {
  const { db, dispatch } = context
  const rows = await retryLostRaces(() => offerAgain(db, table, choice(lookout, context)))
  // First the row, then the message: what dies in between is found by the next look but one.
  for (const { id } of rows) lookout.offered.add(id)
  const offers = rows.map(({ id }) => ({ id, dueAt: null }))
  await publishJobs(dispatch, table.name, offers, context)
  tell(table, rows, 'republished', context)
  return rows
}

async function giveUp(table: JobTable, lookout: Lookout, context: PassContext): Promise<UndispatchedRow[]> {
  const rows = await retryLostRaces(() => giveUpUndispatched(context.db, table, choice(lookout, context)))
  tell(table, rows, 'failed', context)
  return rows
}

function choice({ orphanSec, offered }: Lookout, { settings, batch }: PassContext): Parameters<typeof offerAgain>[2] {
  return { orphanSec, maxAttempts: settings.maxAttempts, limit: batch.limit, exclude: offered.ids() }
}

function tell(
  table: JobTable,
  rows: readonly UndispatchedRow[],
  outcome: 'republished' | 'failed',
  { log, metrics }: PassContext,
): void {
  metrics?.count('reaper_undispatched_total', { table: table.name, outcome }, rows.length)
  for (const { id: jobId, waitedSec } of rows) {
    log.info({ table: table.name, jobId, waitedSec: Math.round(waitedSec), outcome }, 'job was never dispatched')
  }
}

/** Delivered jobs that could not be taken: why not, counted, and offered again where the job still waits for somebody. */
import { readUnclaimed, type UnclaimedState } from '../db/claim.ts'
import type { Database } from '../db/client.ts'
import { isMalformedId } from '../db/errors.ts'
import type { TableHandle } from '../db/open-once.ts'
import type { Dispatcher, Offer } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import type { Log } from '../telemetry/log.ts'
import type { DispatchSkip, Metrics } from '../telemetry/metrics.ts'

/** A job for which this worker has no handler or no slot is left to another worker, or to a later moment. */
const ELSEWHERE_MS = 3000

export async function accountFor(
  ids: readonly string[],
  context: {
    db: Database
    handle: TableHandle
    dispatch: Dispatcher
    table: string
    maxAttempts: number
    log: Log
    metrics: Metrics | undefined
  },
): Promise<void> {
  const { db, handle, dispatch, table, maxAttempts, log, metrics } = context
  const offers: Offer[] = []
  for (const id of ids) {
    const state = await handle.use((opened) =>
      readUnclaimed(db, opened, { id, maxAttempts }).catch((error: unknown) => {
        if (isMalformedId(error)) return null
        throw error
      }),
    )
    const skip = skipOf(state)
    metrics?.count('worker_dispatch_skips_total', { table, code: skip })
    if (state?.hasLiveLease) metrics?.count('worker_duplicate_skips_total', {})
    log.debug({ table, jobId: id, skip }, 'delivered job skipped')
    // A due time without end is nothing to wait for.
    if (skip === 'NOT_DUE' && Number.isFinite(state?.dueAt?.getTime())) offers.push({ id, dueAt: state?.dueAt ?? null })
    if (skip === 'NOT_HERE') offers.push({ id, dueAt: new Date(Date.now() + ELSEWHERE_MS) })
  }
  await publishJobs(dispatch, table, offers, { log, metrics })
}

function skipOf(state: UnclaimedState | null): DispatchSkip {
  if (!state) return 'NOT_FOUND'
  if (!state.isQueued) return 'NOT_QUEUED'
  if (!state.isDue) return 'NOT_DUE'
  return state.hasAttemptsLeft ? 'NOT_HERE' : 'NO_ATTEMPTS_LEFT'
}

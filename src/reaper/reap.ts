/** One pass over one table: batch after batch until nothing that ran out is left. */
import type { Database } from '../db/client.ts'
import { DeadlineError, describeError, isTimeout, mayBeOneRow } from '../db/errors.ts'
import {
  type BatchChoice,
  EVERY_DUE_ROW,
  grantMissingLeases,
  previewExpired,
  type ReapedRow,
  reapExpired,
  type ReapSettings,
} from '../db/reap.ts'
import { retryLostRaces } from '../db/retry.ts'
import type { JobTable } from '../db/table.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type Isolation, moveAllButBroken } from './isolation.ts'

export interface ReaperResult {
  requeuedIds: string[]
  failedIds: string[]
}

export interface PassContext {
  db: Database
  settings: ReapSettings
  /** How many rows a statement takes; what proved too many is remembered from pass to pass. */
  batch: { size: number; limit: number }
  isolation: Isolation
  log: Log
  metrics: Metrics | undefined
  /** How requeued jobs reach their workers; without one, workers poll. */
  dispatch: Dispatcher | undefined
  signal?: AbortSignal
  /** Told after every batch what it moved: a long pass is not a dead one. */
  onBatch?: (moved: readonly ReapedRow[]) => void
}

export async function reapTable(
  table: JobTable,
  context: PassContext,
  options: { yieldToOthers: boolean },
): Promise<ReaperResult> {
  const result: ReaperResult = { requeuedIds: [], failedIds: [] }
  const { batch } = context
  await grantLeases(table, context)
  while (!context.signal?.aborted) {
    try {
      const rows = await reapBatch(table, context, options)
      for (const row of rows) record(row, table, result, context)
      const requeued = rows.filter(({ outcome }) => outcome === 'requeued')
      await publishJobs(context.dispatch, table.name, requeued, context)
      context.onBatch?.(rows)
      if (rows.length < batch.limit) break
      batch.limit = Math.min(batch.size, batch.limit * 2)
    } catch (error) {
      await shrink(error, table, context)
    }
  }
  return result
}

/** What timed out is tried with half as many rows; a single row that is too slow is set aside. Anything else is thrown. */
async function shrink(error: unknown, table: JobTable, context: PassContext): Promise<void> {
  const { batch, log } = context
  if (!isTimeout(error)) throw error
  if (batch.limit > 1) {
    batch.limit = Math.ceil(batch.limit / 2)
    log.warn({ table: table.name, limit: batch.limit }, 'a batch timed out; going on with smaller ones')
    // No answer at all may also mean that the database is away: the loop looks again before anything is moved.
    if (error instanceof DeadlineError) throw error
    return
  }
  const [slow] = await previewExpired(context.db, table, context.settings, choose(context, { yieldToOthers: false }))
  if (!slow) throw error
  setAside(context, table, slow.id, error)
  batch.limit = batch.size
}

async function reapBatch(
  table: JobTable,
  context: PassContext,
  options: { yieldToOthers: boolean },
): Promise<ReapedRow[]> {
  const { db, settings } = context
  const choice = choose(context, options)
  try {
    return await retryLostRaces(() => reapExpired(db, table, settings, choice))
  } catch (error) {
    if (!mayBeOneRow(error)) throw error
    const candidates = await previewExpired(db, table, settings, choice)
    const move = (only: readonly string[]): Promise<ReapedRow[]> =>
      retryLostRaces(() => reapExpired(db, table, settings, { ...choice, only, yieldToOthers: false }))
    return moveAllButBroken(
      candidates.map((row) => row.id),
      move,
      (id, cause) => setAside(context, table, id, cause),
    )
  }
}

/** Granting is a kindness to odd rows; when it breaks, the others must not wait for it. */
async function grantLeases(table: JobTable, { db, settings, batch, log }: PassContext): Promise<void> {
  try {
    const granted = await retryLostRaces(() => grantMissingLeases(db, table, settings.rules, batch.limit))
    for (const jobId of granted) {
      const { defaultLeaseSec } = settings.rules.stages
      log.warn(
        { table: table.name, jobId, leaseSec: defaultLeaseSec },
        'lease granted: nothing in the row told its age',
      )
    }
  } catch (error) {
    if (!mayBeOneRow(error)) throw error
    log.error({ table: table.name, error: describeError(error) }, 'no lease could be granted to a row without any age')
  }
}

function choose({ batch, isolation }: PassContext, { yieldToOthers }: { yieldToOthers: boolean }): BatchChoice {
  return { ...EVERY_DUE_ROW, limit: batch.limit, exclude: isolation.ids(), yieldToOthers }
}

function setAside({ isolation, log }: PassContext, table: JobTable, jobId: string, error: unknown): void {
  isolation.add(jobId)
  log.error({ table: table.name, jobId, error: describeError(error) }, 'row set aside: it breaks its statement')
}

/** After the commit, and only for what the statement says it changed. Telling must not break the pass. */
function record(row: ReapedRow, table: JobTable, result: ReaperResult, { log, metrics }: PassContext): void {
  const isRequeued = row.outcome === 'requeued'
  ;(isRequeued ? result.requeuedIds : result.failedIds).push(row.id)
  try {
    const labels = { table: table.name, stage: metrics?.stageLabel(row.stage) ?? '' }
    metrics?.count(isRequeued ? 'reaper_requeues_total' : 'reaper_failures_total', labels)
    if (isRequeued) metrics?.count('worker_recovered_jobs_total', { reason: row.rule })
    const { id: jobId, rule: reason, attempt, dueAt } = row
    // A row may say anything, at any length.
    const [stage, holder] = [row.stage?.slice(0, 80), row.holder?.slice(0, 200) ?? null]
    log.info(
      { table: table.name, jobId, reason, attempt, holder, stage, dueAt },
      isRequeued ? 'job requeued' : 'job failed',
    )
  } catch {
    // A broken sink is the sink's problem; the row is moved and its event is written.
  }
}

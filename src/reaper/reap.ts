/** One pass over one table: batch after batch until nothing that ran out is left. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { DeadlineError, errorCode, isTimeout, mayBeOneRow } from '../db/errors.ts'
import {
  type BatchChoice,
  EVERY_DUE_ROW,
  grantMissingLeases,
  previewExpired,
  type ReapedRow,
  reapExpired,
  type ReapSettings,
} from '../db/reap.ts'
import type { JobTable } from '../db/table.ts'
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
  batchSize: number
  isolation: Isolation
  log: Log
  metrics: Metrics | undefined
  signal?: AbortSignal
}

export async function reapTable(
  table: JobTable,
  context: PassContext,
  options: { yieldToOthers: boolean },
): Promise<ReaperResult> {
  const result: ReaperResult = { requeuedIds: [], failedIds: [] }
  const { db, settings, batchSize, log } = context

  const granted = await retryLostRaces(() => grantMissingLeases(db, table, settings.rules, batchSize))
  for (const jobId of granted) {
    log.warn(
      { table: table.name, jobId, leaseSec: settings.rules.stages.defaultLeaseSec },
      'lease granted: nothing in the row told its age',
    )
  }

  let limit = batchSize
  let missedDeadlines = 0
  while (!context.signal?.aborted) {
    try {
      const rows = await reapBatch(table, context, { limit, yieldToOthers: options.yieldToOthers })
      for (const row of rows) record(row, table, result, context)
      if (rows.length < limit) break
      missedDeadlines = 0
      limit = Math.min(batchSize, limit * 2)
    } catch (error) {
      // Twice no answer at all is not a batch that is too large, it is a database that is away.
      if (error instanceof DeadlineError) missedDeadlines += 1
      if (!isTimeout(error) || limit === 1 || missedDeadlines > 1) throw error
      limit = Math.ceil(limit / 2)
      log.warn({ table: table.name, limit }, 'a batch timed out; going on with smaller ones')
    }
  }
  return result
}

async function reapBatch(
  table: JobTable,
  context: PassContext,
  wish: { limit: number; yieldToOthers: boolean },
): Promise<ReapedRow[]> {
  const { db, settings, isolation, log } = context
  const choice: BatchChoice = { ...EVERY_DUE_ROW, ...wish, exclude: isolation.ids() }
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
      { isolation, log, table: table.name },
    )
  }
}

/** After the commit, and only for what the statement says it changed. Telling must not break the pass. */
function record(row: ReapedRow, table: JobTable, result: ReaperResult, { log, metrics }: PassContext): void {
  const isRequeued = row.outcome === 'requeued'
  ;(isRequeued ? result.requeuedIds : result.failedIds).push(row.id)
  try {
    const labels = { table: table.name, stage: metrics?.stageLabel(row.stage) ?? '' }
    metrics?.count(isRequeued ? 'reaper_requeues_total' : 'reaper_failures_total', labels)
    if (isRequeued) metrics?.count('worker_recovered_jobs_total', { reason: row.rule })
    const { id: jobId, rule: reason, attempt, holder, stage, dueAt } = row
    log.info(
      { table: table.name, jobId, reason, attempt, holder, stage, dueAt },
      isRequeued ? 'job requeued' : 'job failed',
    )
  } catch {
    // A broken sink is the sink's problem; the row is moved and its event is written.
  }
}

/** Deadlocks, serialization failures and lock timeouts: nothing happened, and the same statement may well go through. */
async function retryLostRaces<T>(act: () => Promise<T>, tries = 5): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await act()
    } catch (error) {
      if (!['40001', '40P01', '55P03'].includes(errorCode(error)) || tried === tries) throw error
      await sleep(20 * 2 ** tried * Math.random())
    }
  }
}

/** Publishes jobs without ever breaking what its caller does: the table is the truth, and what was not published is found again. */
import { describeError } from '../db/errors.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Dispatcher, Offer } from './dispatcher.ts'

export async function publishJobs(
  dispatch: Dispatcher | undefined,
  table: string,
  jobs: readonly Offer[],
  { log, metrics }: { log: Log; metrics: Metrics | undefined },
): Promise<void> {
  if (!dispatch || jobs.length === 0) return
  try {
    await dispatch.publish(
      table,
      jobs.map(({ id, dueAt }) => ({ id, dueAt })),
    )
    metrics?.count('dispatch_published_total', { table }, jobs.length)
  } catch (error) {
    metrics?.count('dispatch_failures_total', { table }, jobs.length)
    log.error(
      { table, jobs: jobs.length, error: describeError(error) },
      'jobs could not be published; they are offered again later',
    )
  }
}

/** Shows a look at a table as gauges. */
import type { Look } from '../db/look.ts'
import type { Metrics } from '../telemetry/metrics.ts'

export function showLook(metrics: Metrics, table: string, look: Look, isolatedRows: number): void {
  const { queued, processing, failed } = look
  const done = Math.max(0, look.finishedEstimate - queued - processing - failed)
  for (const [status, rows] of Object.entries({ queued, processing, failed, done })) {
    metrics.set('job_rows', { table, status }, rows)
  }
  metrics.set('job_due', { table }, look.due)
  metrics.set('job_oldest_due_age_seconds', { table }, look.oldestDueSec ?? 0)
  metrics.set('job_undispatched', { table }, look.undispatched)
  metrics.set('job_held_leases', { table }, look.held)
  metrics.set('job_expired_leases', { table }, look.expired)
  metrics.set('job_nearest_lease_end_seconds', { table }, look.nearestLeaseSec ?? 0)
  metrics.set('reaper_outage_holds', { table }, look.spared)
  metrics.set('reaper_isolated_rows', { table }, isolatedRows)
  metrics.set('reaper_leader', { table }, look.isLeader ? 1 : 0)
}

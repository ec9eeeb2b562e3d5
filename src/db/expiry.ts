/** When a processing job runs out, and by which rule. Reap, dry run, look and explain all read the answer from here. */
import { MAX_LEASE_SEC, MAX_RUNTIME_SEC, type StagePolicy } from '../job/stage.ts'
import { byStage, NOW } from './dialect.ts'
import { type Fragment, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface ExpiryRules {
  stages: StagePolicy
  /** Age of a heartbeat, without a lease, that counts as dead. */
  leaseTimeoutSec: number
  /** Age of a start, without lease and heartbeat, that counts as dead. */
  nullLeaseSec: number
  /** Grace after an outage; null for a pass that asks for none. */
  outage: OutageGrace | null
}

export interface OutageGrace {
  /** How long after its return the database's clients have to check in. */
  graceSec: number
  /** When our own contact came back, by the database's clock in seconds since 1970; null when it was never lost. */
  contactBackAt: number | null
}

/**
 * A FROM item `ends` beside `j` with: `lh_at` (when the job may be reaped, NULL when nothing in the row can tell),
 * `lh_rule`, and `lh_spared` (it would be due now but for the grace after an outage).
 *
 * A lease further away than any we grant (`infinity`, a typing error) is not believed: the heartbeat decides then.
 */
export function expiry({ dialect: d }: JobTable, rules: ExpiryRules): Fragment {
  const believed = (time: Fragment): Fragment =>
    sql`case when ${time} <= ${NOW} + make_interval(secs => ${MAX_LEASE_SEC + 60}) then ${time} end`
  return sql`
    cross join lateral (
      select
        case when isfinite(${d.read.startedAt}) then ${believed(d.read.startedAt)} end as started,
        case when ${d.read.nextRunAt} <= ${NOW} then ${d.read.nextRunAt} end as due,
        ${runtimeSec(d.read.stage, d.read.expectedDurationMs, rules)} as runtime_sec
    ) as begun
    cross join lateral (
      select begun.*, ${believed(d.read.leaseExpiresAt)} as lease,
        -- A requeue keeps the last heartbeat for diagnosis. A run that began after the due time it set has not beaten yet.
        case when ${d.read.heartbeatAt} < begun.due and coalesce(begun.started >= begun.due, true) then null
          -- A start is a sign of life too: a heartbeat from before it does not make a fresh run stale.
          else greatest(${believed(d.read.heartbeatAt)}, case when ${believed(d.read.heartbeatAt)} is not null then begun.started end) end as beat,
        -- Where no start is known: it cannot have been before the job was due.
        coalesce(begun.started, greatest(${d.lastSeenAt}, begun.due)) as seen
    ) as row_says
    cross join lateral (
      select
        coalesce(
          row_says.lease,
          row_says.beat + make_interval(secs => ${rules.leaseTimeoutSec}),
          row_says.seen + make_interval(secs => ${rules.nullLeaseSec})) as silent_at,
        case
          when row_says.lease is not null then 'lease_expired'
          when row_says.beat is not null then 'heartbeat_stale'
          else 'no_heartbeat'
        end as silent_rule,
        row_says.started + make_interval(secs => row_says.runtime_sec) as overrun_at,
        ${graceUntil(rules.outage)} as grace_until
    ) as limits
    cross join lateral (
      select
        greatest(least(limits.silent_at, limits.overrun_at), limits.grace_until) as lh_at,
        case when limits.overrun_at < limits.silent_at and limits.silent_at > ${NOW} then 'run_deadline' else limits.silent_rule end as lh_rule,
        coalesce(least(limits.silent_at, limits.overrun_at) <= ${NOW} and limits.grace_until > ${NOW}, false) as lh_spared,
        limits.silent_at is null as lh_ungoverned
    ) as ends`
}

/**
 * How long a run may take before the reaper ends it, lease or no lease: the worker's own deadline plus a lease timeout,
 * so that a worker that keeps its own deadline is always first.
 */
function runtimeSec(stage: Fragment, expectedMs: Fragment, { stages, leaseTimeoutSec }: ExpiryRules): Fragment {
  const slowest = Math.max(1, ...Object.values(stages.factors))
  const unexpected = stages.maxRuntimeSec > 0 ? Math.min(stages.maxRuntimeSec, MAX_RUNTIME_SEC) : null
  return sql`
    ${leaseTimeoutSec}::float8 + case
      when ${expectedMs} > 0 then
        least(greatest(${expectedMs}::float8 / 1000 * ${byStage(stage, stages.factors, slowest)}, ${stages.defaultLeaseSec}::float8), ${MAX_RUNTIME_SEC}::float8)
      else ${unexpected}::float8
    end`
}

/** A job whose holder has not been heard of since the database came back is left alone for a while: it had no chance yet. */
function graceUntil(outage: OutageGrace | null): Fragment {
  if (!outage) return sql`null::timestamptz`
  const back = sql`greatest(pg_postmaster_start_time(), to_timestamp(${outage.contactBackAt}::float8))`
  return sql`case when coalesce(row_says.beat, row_says.seen) < ${back} then ${back} + make_interval(secs => ${outage.graceSec}) end`
}

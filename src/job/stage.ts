/** How long a lease of a stage lasts, and how long a run of it may take. A factor says how many beats a stage may miss. */

/** No lease is granted for longer than a day, and one that claims to be is not believed. */
export const MAX_LEASE_SEC = 24 * 3600

/** Longest run deadline we compute: far above any real job, far below what interval arithmetic can hold. */
export const MAX_RUNTIME_SEC = 365 * 24 * 3600

export const DEFAULT_SLA_FACTORS = { clip: 6, asr: 12, burnin: 8 } as const satisfies Record<string, number>

export interface StagePolicy {
  /** How often a worker beats; what the leases below were computed from. */
  heartbeatSec: number
  /** Lease of each known stage. */
  leaseSec: Record<string, number>
  /** SLA factor of each known stage; also scales `expected_duration_ms` into the run deadline. */
  factors: Record<string, number>
  /** Lease of an unknown stage or of none, and the least a run deadline can be. */
  defaultLeaseSec: number
  /** Run deadline without an expected duration; 0 means none. */
  maxRuntimeSec: number
}

export function stagePolicy(input: {
  heartbeatSec: number
  factors: Record<string, number>
  defaultLeaseSec: number
  maxRuntimeSec: number
}): StagePolicy {
  const { heartbeatSec, factors, maxRuntimeSec } = input
  const leaseSec = Object.fromEntries(
    Object.entries(factors).map(([stage, factor]) => [
      stage,
      clampLeaseSec(Math.max(3 * heartbeatSec, factor * heartbeatSec)),
    ]),
  )
  return { heartbeatSec, leaseSec, factors, defaultLeaseSec: clampLeaseSec(input.defaultLeaseSec), maxRuntimeSec }
}

/** Stages are compared exactly: `Clip` is not `clip`, it is a stage nobody configured. */
export function leaseSecFor(stage: string | null, policy: StagePolicy): number {
  return (stage !== null && Object.hasOwn(policy.leaseSec, stage) && policy.leaseSec[stage]) || policy.defaultLeaseSec
}

/** The reaper may sleep this long without missing a lease that is granted meanwhile. */
export function shortestLeaseSec(policy: StagePolicy): number {
  return Math.min(policy.defaultLeaseSec, ...Object.values(policy.leaseSec))
}

/** How patient we are with a stage nobody configured: as patient as with the slowest one we know. */
export function factorFor(stage: string | null, policy: StagePolicy): number {
  const known = stage !== null && Object.hasOwn(policy.factors, stage) ? policy.factors[stage] : undefined
  return known ?? Math.max(1, ...Object.values(policy.factors))
}

/** Seconds a run may take, or null for no limit. */
export function runDeadlineSec(
  job: { stage: string | null; expectedDurationMs: number | null },
  policy: StagePolicy,
): number | null {
  if (job.expectedDurationMs !== null && job.expectedDurationMs > 0) {
    const expectedSec = (job.expectedDurationMs / 1000) * factorFor(job.stage, policy)
    return Math.min(Math.max(expectedSec, policy.defaultLeaseSec), MAX_RUNTIME_SEC)
  }
  return policy.maxRuntimeSec > 0 ? Math.min(policy.maxRuntimeSec, MAX_RUNTIME_SEC) : null
}

export function clampLeaseSec(sec: number): number {
  if (Number.isNaN(sec)) return 1
  return Math.min(Math.max(sec, 0.1), MAX_LEASE_SEC)
}

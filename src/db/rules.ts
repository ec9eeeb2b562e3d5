/** The settings as they apply to one table: its profile's own numbers where it has any. */
import { type StagePolicy, stagePolicy } from '../job/stage.ts'
import type { ExpiryRules } from './expiry.ts'
import type { Profile } from './profile.ts'

export interface GeneralRules {
  stages: StagePolicy
  leaseTimeoutSec: number
  nullLeaseSec: number
}

export function rulesFor(profile: Profile, general: GeneralRules): Omit<ExpiryRules, 'outage'> {
  const { heartbeatSec, staleAfterSec, noHeartbeatSec } = profile.policy
  return {
    stages: stagesFor(profile, general.stages),
    leaseTimeoutSec: staleAfterSec ?? Math.max(general.leaseTimeoutSec, 3 * (heartbeatSec ?? 0)),
    nullLeaseSec: noHeartbeatSec ?? general.nullLeaseSec,
  }
}

/** How long the holders of this table's jobs get to check in after the database was away. */
export function graceSecFor(profile: Profile, heartbeatSec: number): number {
  return 2 * Math.max(heartbeatSec, profile.policy.heartbeatSec ?? 0)
}

export function stagesFor(profile: Profile, stages: StagePolicy): StagePolicy {
  const heartbeatSec = profile.policy.heartbeatSec ?? stages.heartbeatSec
  return stagePolicy({
    heartbeatSec,
    factors: { ...stages.factors, ...profile.slaFactors },
    defaultLeaseSec: Math.max(stages.defaultLeaseSec, 2 * heartbeatSec),
    maxRuntimeSec: stages.maxRuntimeSec,
  })
}

/** Every stage that has a lease of its own in any of these tables: the label values of the metrics. */
export function knownStages(profiles: readonly Profile[], stages: StagePolicy): string[] {
  const own = profiles.flatMap(({ stage, slaFactors }) => [
    ...Object.keys(slaFactors),
    ...(stage === null ? [] : [stage]),
  ])
  return [...new Set([...Object.keys(stages.leaseSec), ...own])]
}

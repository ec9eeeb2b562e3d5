/** An operator on a team's table, with the settings' defaults, and a reaper to hold its words against. */
import type { Database } from '../../src/db/client.ts'
import type { Profile } from '../../src/db/profile.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createOperator, type Operator, type OperatorOptions } from '../../src/operator/operator.ts'

export const STAGES = stagePolicy({
  heartbeatSec: 10,
  factors: { clip: 6, asr: 12, burnin: 8 },
  defaultLeaseSec: 300,
  maxRuntimeSec: 21_600,
})

export const LADDER_MS = [30_000, 120_000, 600_000]

/** The tests' server may have started a moment ago: with a heartbeat of nothing, no row is spared because of that. */
export function withoutGrace(profile: Profile): Profile {
  return { ...profile, policy: { ...profile.policy, heartbeatSec: null } }
}

export function operatorOn(db: Database, tables: readonly Profile[], options: Partial<OperatorOptions> = {}): Operator {
  return createOperator({
    db,
    tables,
    heartbeatSec: 0,
    stages: STAGES,
    leaseTimeoutSec: 30,
    nullLeaseSec: 3600,
    queuedOrphanSec: 300,
    maxAttempts: 3,
    backoffLadderMs: LADDER_MS,
    ...options,
  })
}

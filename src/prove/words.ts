/** What a proof says: its figures in a table, and what they mean with the settings in force. */
import type { Profile } from '../db/profile.ts'
import { stagesFor } from '../db/rules.ts'
import { duration } from '../job/duration.ts'
import type { StagePolicy } from '../job/stage.ts'
import type { Proof, Recovery } from './prove.ts'

/** The settings of everyday, as they apply to this table. */
export interface Everyday {
  heartbeatSec: number
  shortestLeaseSec: number
  longestLeaseSec: number
  firstRetrySec: number
}

export function everydayOf(
  profile: Profile,
  { stages, backoffLadderMs }: { stages: StagePolicy; backoffLadderMs: readonly number[] },
): Everyday {
  const { heartbeatSec, leaseSec, defaultLeaseSec } = stagesFor(profile, stages)
  const all =
    profile.stage === null
      ? [...Object.values(leaseSec), defaultLeaseSec]
      : [leaseSec[profile.stage] ?? defaultLeaseSec]
  return {
    heartbeatSec,
    shortestLeaseSec: Math.min(...all),
    longestLeaseSec: Math.max(...all),
    firstRetrySec: (backoffLadderMs[0] ?? 0) / 1000,
  }
}

/** Two cells a row. */
export function figuresOf(proof: Proof): [string, string][] {
  const { roundTripMs, pace, supervised, alone } = proof
  const moved = proof.onExpiry === 'requeue' ? 'in the queue again' : 'failed, as the table says'
  const rows = (title: string, noticed: string, recovery: Recovery): [string, string][] => [
    [title, ''],
    [`  ${noticed}`, after(recovery.detectedMs)],
    [`  ${moved}`, after(recovery.movedMs)],
    ...(recovery.runningMs === null ? [] : [['  running again', after(recovery.runningMs)] as [string, string]]),
    ...(recovery.doneMs === null ? [] : [['  done, at attempt 2', after(recovery.doneMs)] as [string, string]]),
  ]
  return [
    ['round trip to the database', `${milliseconds(roundTripMs.median)}, at worst ${milliseconds(roundTripMs.worst)}`],
    [
      'in the proof',
      `heartbeat ${pace.heartbeatSec.toFixed(1)} s, lease ${pace.leaseSec} s, first retry after ${pace.firstRetryMs} ms`,
    ],
    ...rows('a worker was killed, its supervisor lived', 'seen by the supervisor', supervised),
    ...rows('worker and supervisor were killed', 'the lease ran out', alone),
  ]
}

export function sentencesOf({ onExpiry, supervised, alone }: Proof, everyday: Everyday): string[] {
  const moved = onExpiry === 'requeue' ? 'is in the queue again' : 'is failed, as its table wants it,'
  const { heartbeatSec, shortestLeaseSec: shortest, longestLeaseSec: longest, firstRetrySec } = everyday
  const isOne = shortest === longest
  const leases = isOne ? `a lease of ${duration(longest)}` : `leases from ${duration(shortest)} to ${duration(longest)}`
  const atMost = isOne ? duration(longest) : `${duration(shortest)} to ${duration(longest)}, by stage,`
  return [
    `When a worker dies, its job ${moved} ${seconds(supervised.movedMs)} later if a supervisor sees it, and ${seconds(alone.movedMs - alone.detectedMs)} after its lease has run out if nobody does.`,
    `With your heartbeat of ${duration(heartbeatSec)} and ${leases}, a lease runs out at most ${atMost} after the last heartbeat.`,
    ...(onExpiry === 'requeue'
      ? [`The job runs again ${duration(firstRetrySec)} later, as soon as a worker is free.`]
      : []),
  ]
}

function after(ms: number): string {
  return ms < 1 ? 'within 1 ms' : `after ${seconds(ms)}`
}

function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`
}

function milliseconds(ms: number): string {
  return `${ms.toFixed(ms < 1 ? 2 : ms < 10 ? 1 : 0)} ms`
}

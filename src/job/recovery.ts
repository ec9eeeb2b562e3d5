/** Why a job is taken from its holder: the rule that ran out for it, its worker's end seen by the supervisor, or a person's word. */
export const REAP_RULES = [
  'lease_expired',
  'heartbeat_stale',
  'no_heartbeat',
  'run_deadline',
  'worker_exit',
  'lease_ended',
] as const

export type ReapRule = (typeof REAP_RULES)[number]

/** The same for a person to read. */
export const RULE_WORDS: Record<ReapRule, string> = {
  lease_expired: 'the lease has run out',
  heartbeat_stale: 'no lease, and the last heartbeat is too old',
  no_heartbeat: 'no lease and no heartbeat, and the last sign of life is too old',
  run_deadline: 'it runs for longer than it may',
  worker_exit: 'its worker has ended',
  lease_ended: 'somebody ended the lease',
}

/** When more than half of at least ten held leases run out at once, it is rarely the workers. */
export function isMassExpiry(expired: number, held: number): boolean {
  return held >= 10 && expired > held / 2
}

export interface WakeInput {
  /** Seconds until the nearest deadline in any table; null when nothing is held. */
  nearestDeadlineSec: number | null
  /** The shortest configured lease: what is claimed from now on cannot run out before. */
  shortestLeaseSec: number
  intervalSec: number
  heartbeatSec: number
  /** Something is due but could not be moved: locked by someone else, or another reaper is at it. */
  hasLeftovers: boolean
}

/** A deadline is met a moment after it passed, never a hair before, which would cost a pass for nothing. */
const AFTER_DEADLINE_SEC = 0.02
/** Never a busy loop, however many deadlines stand close together. */
const SHORTEST_SLEEP_SEC = 0.2
/** How soon we look again after something due could not be moved. */
const LEFTOVER_SLEEP_SEC = 1

/**
 * How long the reaper sleeps: until the first moment at which it could have something to do. One heartbeat before a
 * deadline it looks once more: if the database answers then, every healthy worker has had its chance before the lease
 * ends; if it does not, an outage is on that would otherwise have passed unnoticed while we slept.
 */
export function nextWakeSec(input: WakeInput): number {
  const { nearestDeadlineSec: nearest, heartbeatSec } = input
  const isFar = nearest !== null && nearest > heartbeatSec + SHORTEST_SLEEP_SEC
  const deadline = nearest === null ? Infinity : isFar ? nearest - heartbeatSec : nearest + AFTER_DEADLINE_SEC
  const leftovers = input.hasLeftovers ? LEFTOVER_SLEEP_SEC : Infinity
  const soonest = Math.min(deadline, leftovers, input.shortestLeaseSec, input.intervalSec)
  return Math.max(soonest, SHORTEST_SLEEP_SEC)
}

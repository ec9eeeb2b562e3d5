/** How much of its time a running job has left: the same bar on the page and in the terminal. */
import type { ReapRule } from '../job/recovery.ts'

type Moment = Date | string | null

export interface RunningTimes {
  endsAt: Moment
  heartbeatAt: Moment
  startedAt: Moment
  rule: ReapRule | null
}

/** From 0 to 1, of what it had when it last showed life, or of its whole run; null when nothing tells. */
export function shareLeft({ endsAt, heartbeatAt, startedAt, rule }: RunningTimes, now: number): number | null {
  if (endsAt === null) return null
  const from = rule === 'run_deadline' ? startedAt : (heartbeatAt ?? startedAt)
  const wholeMs = from === null ? 0 : msOf(endsAt) - msOf(from)
  return wholeMs <= 0 ? null : Math.min(1, Math.max(0, (msOf(endsAt) - now) / wholeMs))
}

function msOf(moment: Date | string): number {
  return new Date(moment).getTime()
}

/** Each attempt of a job, read from its events: who ran it, for how long, and how it ended. */
import type { EventNames } from '../job/event.ts'
import type { ToldEvent } from '../db/timeline.ts'

export interface AttemptView {
  attempt: number
  holder: string | null
  startedAt: string | null
  endedAt: string | null
  durationSec: number | null
  /** The event that ended it; null while it runs, or when its end was never told. */
  end: string | null
  code: string | null
  reason: string | null
}

/** The events an attempt ends with. */
function endsOf(names: EventNames): string[] {
  const { done, failed, retry, reaperRequeued, reaperFailed, aborted, operatorCancel, operatorEndedLease } = names
  return [done, failed, retry, reaperRequeued, reaperFailed, aborted, operatorCancel, operatorEndedLease]
}

/** The events that tell of attempts: few, where progress may be told ten thousand times. */
export function attemptEvents(names: EventNames): string[] {
  return [names.processing, ...endsOf(names)]
}

/** Oldest first. Events of the team's own, or without an attempt, tell nothing about one. */
export function attemptsOf(timeline: readonly ToldEvent[], names: EventNames): AttemptView[] {
  const ends: ReadonlySet<string> = new Set(endsOf(names))
  const attempts = new Map<number, AttemptView>()
  for (const { type, at, details } of timeline) {
    const { attempt } = details
    if (typeof attempt !== 'number' || !Number.isSafeInteger(attempt)) continue
    const text = (key: string): string | null => (typeof details[key] === 'string' ? details[key] : null)
    if (type === names.processing) {
      attempts.set(attempt, { ...BLANK, attempt, holder: text('holder'), startedAt: at })
      continue
    }
    const begun = attempts.get(attempt)
    // A job that was only waiting is cancelled without an attempt of its own to end.
    if (!ends.has(type) || !begun || begun.end !== null) continue
    begun.end = type
    begun.endedAt = at
    begun.durationSec = secondsBetween(begun.startedAt, at)
    begun.code = text('code')
    begun.reason = text('cause') ?? text('reason')
  }
  return [...attempts.values()]
}

const BLANK = { endedAt: null, durationSec: null, end: null, code: null, reason: null }

function secondsBetween(from: string | null, to: string | null): number | null {
  const sec = (Date.parse(to ?? '') - Date.parse(from ?? '')) / 1000
  return Number.isFinite(sec) ? sec : null
}

/** The last hour, minute by minute: what was done, requeued and failed, and how much waited. In memory, from the events. */
import type { EventNames } from '../job/event.ts'
import type { ToldCounts } from '../db/timeline.ts'

const MINUTES = 60

export interface MinuteCounts {
  /** `2026-11-18T12:04`, in UTC. */
  minute: string
  done: number
  requeued: number
  failed: number
  /** Queued at the last look of that minute; null when nobody looked. */
  queued: number | null
  processing: number | null
}

export interface TableHistory {
  table: string
  /** Whether the events tell how many were done, requeued and failed: they need a numbered id to be counted cheaply. */
  hasEvents: boolean
  minutes: MinuteCounts[]
}

/** In memory for as long as the process lives, so it keeps the last hour and nothing else. */
export interface History {
  /** Where the next reading of events goes on. */
  cursor(): string | null
  addTold(told: ToldCounts | null): void
  addDepth(at: Date, depth: { queued: number; processing: number }): void
  show(now: Date): TableHistory
}

export function createHistory(table: string, names: EventNames | null): History {
  const kinds = new Map<string, 'done' | 'requeued' | 'failed'>(
    names
      ? [
          [names.done, 'done'],
          [names.reaperRequeued, 'requeued'],
          [names.failed, 'failed'],
          [names.reaperFailed, 'failed'],
        ]
      : [],
  )
  const minutes = new Map<string, MinuteCounts>()
  let cursor: string | null = null
  let hasEvents = false

  function at(minute: string): MinuteCounts {
    const known = minutes.get(minute) ?? blank(minute)
    minutes.set(minute, known)
    return known
  }

  /** An event may say any time of itself; what lies outside of the last hour is not kept. */
  function forget(now: Date): void {
    const [oldest, newest] = [minutesBefore(now, MINUTES - 1), minutesBefore(now, -1)]
    for (const minute of minutes.keys()) if (minute < oldest || minute > newest) minutes.delete(minute)
  }

  return {
    cursor: () => cursor,
    addTold(told) {
      hasEvents = told !== null
      if (!told) return
      cursor = told.cursor
      for (const { type, minute, told: times } of told.counts) {
        const kind = kinds.get(type)
        if (kind) at(minute)[kind] += times
      }
    },
    addDepth(moment, { queued, processing }) {
      Object.assign(at(minuteOf(moment)), { queued, processing })
      forget(moment)
    },
    show(now) {
      const shown = Array.from({ length: MINUTES }, (_, place) => minutesBefore(now, MINUTES - 1 - place))
      return { table, hasEvents, minutes: shown.map((minute) => minutes.get(minute) ?? blank(minute)) }
    },
  }
}

function minutesBefore(now: Date, back: number): string {
  return minuteOf(new Date(now.getTime() - back * 60_000))
}

function minuteOf(moment: Date): string {
  return moment.toISOString().slice(0, 16)
}

function blank(minute: string): MinuteCounts {
  return { minute, done: 0, requeued: 0, failed: 0, queued: null, processing: null }
}

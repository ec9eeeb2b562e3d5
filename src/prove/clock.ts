/** The database's clock, read from afar: how long a round trip takes, and how far its clock is from ours. */
import type { Database } from '../db/client.ts'
import { readClockMs } from '../db/scratch-copy.ts'

export interface Clock {
  medianMs: number
  worstMs: number
  /** Now, in milliseconds since 1970, as the database would say; true to half a round trip. */
  now(): number
  /** A moment by our own clock, as the database would say. */
  fromLocal(ms: number): number
}

const SAMPLES = 21

export async function readClock(db: Database): Promise<Clock> {
  const samples: { tookMs: number; aheadMs: number }[] = []
  // The first one pays for the connection.
  await readClockMs(db)
  for (let at = 0; at < SAMPLES; at += 1) {
    const sentAt = localMs()
    const theirs = await readClockMs(db)
    const tookMs = localMs() - sentAt
    samples.push({ tookMs, aheadMs: theirs - (sentAt + tookMs / 2) })
  }
  const sorted = samples.toSorted((a, b) => a.tookMs - b.tookMs)
  // The quickest answer says best what time it was.
  const aheadMs = sorted[0]?.aheadMs ?? 0
  return {
    medianMs: sorted[Math.floor(SAMPLES / 2)]?.tookMs ?? 0,
    worstMs: sorted.at(-1)?.tookMs ?? 0,
    now: () => localMs() + aheadMs,
    fromLocal: (ms) => ms + aheadMs,
  }
}

function localMs(): number {
  return performance.timeOrigin + performance.now()
}

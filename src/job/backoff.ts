/** How long a job waits before its next attempt: a ladder of pauses, one rung per attempt, the last one repeated. */
export const DEFAULT_BACKOFF_LADDER_MS: readonly number[] = [30_000, 120_000, 600_000]

/** A mass requeue spreads by this much. Only upwards, so that nothing runs earlier than promised. */
export const JITTER_FRACTION = 0.1

/** Longest pause we ever write: interval arithmetic stays far away from its limits whatever the settings say. */
export const MAX_BACKOFF_MS = 7 * 24 * 3600 * 1000

/** base, 2 × base, 4 × base … up to max. Ends at the rung that reaches max, so the ladder is short and finite. */
export function backoffLadder(baseMs: number, maxMs: number): number[] {
  const top = Math.min(Math.max(baseMs, maxMs), MAX_BACKOFF_MS)
  const ladder: number[] = []
  for (let pause = Math.min(baseMs, top); pause < top; pause *= 2) ladder.push(pause)
  return [...ladder, top]
}

/** The pause after attempt n without its jitter; the SQL picks the same rung from the same array. */
export function backoffAfter(attempt: number, ladder: readonly number[]): number {
  const rung = Math.min(Math.max(Math.trunc(attempt) || 1, 1), ladder.length)
  return ladder[rung - 1] ?? MAX_BACKOFF_MS
}

/** Which reports of progress are worth storing: often enough to follow, seldom enough not to flood. */

/** A report is worth an event when it rose by this much, */
const STEP_PCT = 1
/** or when the last one is this old. */
const STEP_MS = 500

export interface ProgressGate {
  /** The percentage to store, or null when this report adds nothing. */
  report(pct: number, nowMs: number): number | null
  /** Monotonic time at which the percentage last rose. */
  lastRiseMs(): number
}

export function createProgressGate(startMs: number): ProgressGate {
  let highest = 0
  let told = -STEP_PCT
  let toldAtMs = -Infinity
  let roseAtMs = startMs
  return {
    report(pct, nowMs) {
      const clamped = Number.isNaN(pct) ? highest : Math.min(Math.max(pct, 0), 100)
      if (clamped > highest) {
        highest = clamped
        roseAtMs = nowMs
      }
      const isFinal = highest === 100 && told < 100
      if (highest - told < STEP_PCT && nowMs - toldAtMs < STEP_MS && !isFinal) return null
      if (told === 100) return null
      told = highest
      toldAtMs = nowMs
      return highest
    },
    lastRiseMs: () => roseAtMs,
  }
}

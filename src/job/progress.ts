/** Which reports of progress are worth storing: often enough to follow, seldom enough not to flood. */

/** A report is worth an event when it rose by this much, */
const STEP_PCT = 1
/** or when the last one is this old. */
const STEP_MS = 500

export interface ProgressGate {
  /** The percentage to store, or null when this report adds nothing. */
  report(pct: number, nowMs: number): number | null
  /** Monotonic time at which the percentage last rose; now, while something else is known to move. */
  lastRiseMs(nowMs: number): number
  /** Counts from here: the work begins. */
  touch(nowMs: number): void
  /** While a finished file is hashed and uploaded no percentage can rise. Answers how to let go. */
  hold(): () => void
}

export function createProgressGate(startMs: number): ProgressGate {
  let highest = 0
  let told = -STEP_PCT
  let toldAtMs = -Infinity
  let roseAtMs = startMs
  let holds = 0
  return {
    report(pct, nowMs) {
      // Handlers are not all TypeScript: a text or a bigint moves nothing.
      const isNumber = typeof pct === 'number' && !Number.isNaN(pct)
      const clamped = isNumber ? Math.min(Math.max(pct, 0), 100) : highest
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
    lastRiseMs(nowMs) {
      if (holds > 0) roseAtMs = nowMs
      return roseAtMs
    },
    touch: (nowMs) => {
      roseAtMs = nowMs
    },
    hold() {
      holds += 1
      return () => {
        holds -= 1
      }
    },
  }
}

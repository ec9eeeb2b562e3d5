/**
 * Remembers when contact with the database was lost and came back. Healthy workers return a moment after the database
 * does; until they had the chance, a lease that ran out meanwhile proves nothing. All times here are the database's.
 */
import type { OutageGrace } from '../db/expiry.ts'

export interface OutageWatch {
  /** A query could not be sent or was not answered. */
  lost(): void
  /** A query was answered. True when this ends an outage, so that what was just read must be read again with the grace. */
  answered(dbNow: number): boolean
  /** The loop goes to sleep for this long; sleeping much longer means that this whole machine stood still. */
  sleeping(plannedSec: number): void
  grace(): OutageGrace
}

export function createOutageWatch(heartbeatSec: number): OutageWatch {
  let isLost = false
  let lastAnswerAt: number | null = null
  let plannedSec = 0
  let contactBackAt: number | null = null

  return {
    lost: () => {
      isLost = true
    },
    answered(dbNow) {
      const silentSec = lastAnswerAt === null ? Infinity : dbNow - lastAnswerAt
      // A blip shorter than a heartbeat can cost nobody a lease: every lease is at least two.
      const wasAway = isLost && silentSec >= heartbeatSec
      const stoodStill = lastAnswerAt !== null && silentSec > plannedSec + 2 * heartbeatSec
      isLost = false
      lastAnswerAt = dbNow
      plannedSec = 0
      if (wasAway || stoodStill) contactBackAt = dbNow
      return wasAway || stoodStill
    },
    sleeping: (sec) => {
      plannedSec = sec
    },
    grace: () => ({ graceSec: 2 * heartbeatSec, contactBackAt }),
  }
}

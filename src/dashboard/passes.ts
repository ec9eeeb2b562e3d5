/** The reaper's last passes, for the page: the latest of all, and the latest that moved something or broke. */
import type { PassReport } from '../reaper/loop.ts'

export interface PassLog {
  add(pass: PassReport): void
  /** Newest first. */
  latest(): PassReport[]
  eventful(): PassReport[]
}

const KEPT = 30

export function createPassLog(): PassLog {
  const latest: PassReport[] = []
  const eventful: PassReport[] = []
  const keep = (list: PassReport[], pass: PassReport): void => {
    list.unshift(pass)
    list.length = Math.min(list.length, KEPT)
  }
  return {
    add(pass) {
      keep(latest, pass)
      if (pass.requeued + pass.failed > 0 || pass.obstacle !== null) keep(eventful, pass)
    },
    latest: () => [...latest],
    eventful: () => [...eventful],
  }
}

/** What there is in each table, as numbers, and the verdict on it. */
import { describeError } from '../db/errors.ts'
import type { Look } from '../db/look.ts'
import type { HealthReport, TableState } from './health.ts'

export interface TableOverview extends TableState {
  held: number
  ungoverned: number
  /** An estimate: counting finished jobs would read the whole table. */
  done: number
  nextDeadlineSec: number | null
}

export interface Overview {
  at: Date
  health: HealthReport
  tables: TableOverview[]
}

const UNKNOWN = {
  queued: 0,
  due: 0,
  processing: 0,
  held: 0,
  expired: 0,
  overdueSec: null,
  spared: 0,
  ungoverned: 0,
  failed: 0,
  done: 0,
  undispatched: 0,
  exhausted: 0,
  oldestDueSec: null,
  nextDeadlineSec: null,
  isReadOnly: false,
}

/** A table that cannot be looked at: nothing is known but why. */
export function overviewWithout(table: string, error: unknown): TableOverview {
  return { ...UNKNOWN, table, obstacle: `${table}: ${describeError(error)}` }
}

export function overviewFrom(table: string, seen: Look): TableOverview {
  const { queued, due, processing, held, expired, overdueSec, spared, ungoverned, failed } = seen
  const { undispatched, exhausted, oldestDueSec, nextDeadlineSec, isReadOnly } = seen
  const done = Math.max(0, seen.finishedEstimate - queued - processing - failed)
  const waiting = { queued, due, undispatched, exhausted, oldestDueSec }
  const running = { processing, held, expired, overdueSec, spared, ungoverned, nextDeadlineSec }
  return { table, obstacle: null, isReadOnly, ...waiting, ...running, failed, done }
}

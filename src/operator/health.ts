/** One sentence: is anything stuck, and if so, where to look first. */
import { COUNT_CAP } from '../db/look.ts'
import { duration } from '../job/duration.ts'
import { OVERDUE_SEC } from './explain.ts'

export type HealthLevel = 'ok' | 'attention' | 'unhealthy'

export interface HealthReport {
  level: HealthLevel
  /** The worst of it, or that all is well. */
  sentence: string
  /** Everything that is to be said, worst first; empty when all is well. */
  details: { level: HealthLevel; text: string }[]
}

/** What a verdict is made from; the rest of an overview is for the eye. */
export interface TableState {
  table: string
  /** Why nothing is known about it; null when all is. */
  obstacle: string | null
  queued: number
  due: number
  processing: number
  expired: number
  overdueSec: number | null
  spared: number
  failed: number
  undispatched: number
  /** Queued with no attempts left: no claim ever takes them. */
  exhausted: number
  oldestDueSec: number | null
  /** Nothing can be moved. */
  isReadOnly: boolean
}

const RANK: Record<HealthLevel, number> = { unhealthy: 0, attention: 1, ok: 2 }

export function healthOf(tables: readonly TableState[]): HealthReport {
  const details = tables.flatMap(findingsOf).toSorted((a, b) => RANK[a.level] - RANK[b.level])
  const [worst] = details
  if (worst) return { level: worst.level, sentence: worst.text, details }
  const sum = (key: 'processing' | 'due' | 'queued' | 'failed'): number =>
    tables.reduce((all, each) => all + each[key], 0)
  const waiting = sum('queued') - sum('due')
  const later = waiting > 0 ? `, ${number(waiting)} for later` : ''
  const failed = sum('failed')
  const dead = failed > 0 ? `; ${number(failed)} failed` : ''
  const sentence = `Nothing is stuck: ${number(sum('processing'))} running, ${number(sum('due'))} due${later}${dead}.`
  return { level: 'ok', sentence, details }
}

function findingsOf(state: TableState): { level: HealthLevel; text: string }[] {
  const { table, obstacle, expired, overdueSec, spared, undispatched, exhausted, oldestDueSec, isReadOnly } = state
  const { processing } = state
  if (obstacle !== null) return [{ level: 'unhealthy', text: obstacle }]
  const found: { level: HealthLevel; text: string }[] = []
  if (isReadOnly) {
    const text = `${table}: the database is read-only, so nothing can be claimed, finished or reaped. Is this a standby?`
    found.push({ level: 'unhealthy', text })
  }
  if (expired > 0 && (overdueSec ?? Infinity) > OVERDUE_SEC) {
    const late = overdueSec === null ? '' : `, the first for ${duration(overdueSec)}`
    const text = `${table}: ${count(expired, 'running job')} past ${expired === 1 ? 'its' : 'their'} deadline${late}, and nobody takes ${expired === 1 ? 'it' : 'them'} back. Is a reaper running?`
    found.push({ level: 'unhealthy', text })
  } else if (expired > 0) {
    found.push({ level: 'attention', text: `${table}: ${count(expired, 'running job')} just ran out of time` })
  }
  if (undispatched > 0) {
    const text = `${table}: ${count(undispatched, 'due job')} nobody takes, the oldest for ${duration(oldestDueSec ?? 0)}. Is a worker running for ${undispatched === 1 ? 'its stage' : 'their stages'}?`
    // While others run it may be a long queue; when nothing runs at all, nobody is there.
    found.push({ level: processing === 0 ? 'unhealthy' : 'attention', text })
  }
  if (exhausted > 0) {
    const text = `${table}: ${count(exhausted, 'queued job')} without an attempt left, which no claim takes. Retry ${exhausted === 1 ? 'it' : 'them'}, or cancel`
    found.push({ level: 'unhealthy', text: `${text}.` })
  }
  if (spared > 0) {
    const text = `${table}: the database was away; ${count(spared, 'job')} still ${spared === 1 ? 'has' : 'have'} time to check in`
    found.push({ level: 'attention', text })
  }
  return found
}

function count(many: number, what: string): string {
  return `${number(many)} ${what}${many === 1 ? '' : 's'}`
}

/** Counting stops at the cap: more than that is only known to be more. */
function number(many: number): string {
  return many >= COUNT_CAP ? `${many} or more` : String(many)
}

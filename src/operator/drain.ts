/** What a deploy right now would interrupt: which running jobs end by themselves before their worker must, and which do not. */
import type { JobView } from '../db/job-view.ts'

export interface DrainJob {
  table: string
  id: string
  stage: string | null
  holder: string | null
  attempt: number
  runningSec: number | null
  /** What is left of it, from its progress or its expected duration; null when neither tells. */
  remainingSec: number | null
  /** `given back`: its worker gives it back at the limit, and it starts anew without losing an attempt. */
  outcome: 'finishes' | 'given back' | 'unknown'
}

export interface DrainPlan {
  shutdownTimeoutSec: number
  /** The longest first, and no more than can be read; the numbers below are of all. */
  jobs: DrainJob[]
  finishes: number
  givenBack: number
  unknown: number
  /** Work that would be done again. */
  lostSec: number
  /** More is running than was looked at. */
  isCut: boolean
}

const MOST_SHOWN = 500

/** Jobs whose time is up are run by nobody any more: a deploy does not interrupt them. */
export function drainPlan(views: readonly JobView[], shutdownTimeoutSec: number, isCut = false): DrainPlan {
  const running = views.filter(({ endsAt, now }) => endsAt === null || endsAt > now)
  const jobs = running.map((view) => drainJob(view, shutdownTimeoutSec))
  const having = (outcome: DrainJob['outcome']): DrainJob[] => jobs.filter((job) => job.outcome === outcome)
  return {
    shutdownTimeoutSec,
    jobs: jobs.toSorted(longestFirst).slice(0, MOST_SHOWN),
    finishes: having('finishes').length,
    givenBack: having('given back').length,
    unknown: having('unknown').length,
    lostSec: [...having('given back'), ...having('unknown')].reduce((sum, job) => sum + (job.runningSec ?? 0), 0),
    isCut,
  }
}

/** Those nothing is known about first. */
function longestFirst({ remainingSec: a }: DrainJob, { remainingSec: b }: DrainJob): number {
  return a === b ? 0 : (b ?? Infinity) - (a ?? Infinity)
}

function drainJob(view: JobView, limitSec: number): DrainJob {
  const { table, id, stage, holder, attempt, startedAt, now } = view
  const sinceSec = startedAt ? (now.getTime() - startedAt.getTime()) / 1000 : null
  // A start in the future is somebody's mistake.
  const runningSec = sinceSec !== null && sinceSec >= 0 ? sinceSec : null
  const remainingSec = remainingOf(view, runningSec)
  const outcome = remainingSec === null ? 'unknown' : remainingSec <= limitSec ? 'finishes' : 'given back'
  return { table, id, stage, holder, attempt, runningSec, remainingSec, outcome }
}

/** Progress is what the job itself says; an expectation is what somebody thought before, and one that is over says nothing. */
function remainingOf({ progress, expectedDurationMs }: JobView, runningSec: number | null): number | null {
  if (runningSec === null) return null
  if (progress !== null && progress > 0) return (runningSec * (100 - progress)) / progress
  const remainingSec = (expectedDurationMs ?? 0) / 1000 - runningSec
  return remainingSec > 0 ? remainingSec : null
}

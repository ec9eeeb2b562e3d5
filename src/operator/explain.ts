/** Where a job is, why, and what happens next, in plain words. The same for the terminal and the page. */
import type { JobView } from '../db/job-view.ts'
import { backoffAfter } from '../job/backoff.ts'
import { duration } from '../job/duration.ts'
import { RULE_WORDS } from '../job/recovery.ts'

export interface Explanation {
  /** What is. */
  now: string
  /** What happens next, if nobody does anything. */
  next: string
  /** What to look at or to do, where that is not plain from the actions. */
  advice: string | null
  /** What may be done to it by hand. */
  actions: Action[]
}

export const ACTIONS = ['retry', 'cancel', 'end-lease'] as const
export type Action = (typeof ACTIONS)[number]

/** What the words depend on beyond the job itself: the policy of its table, and the columns it has. */
export interface ExplainSettings {
  onExpiry: 'requeue' | 'fail'
  backoffLadderMs: readonly number[]
  /** A table without a column for the maximum has nothing that a retry could raise. */
  canRaiseAttempts: boolean
  /** Without a column for the due time, what is requeued may run at once. */
  hasDueTime: boolean
  /** Whether a column could take the time that the reaper gives to a row in which nothing tells its age. */
  canBeGivenTime: boolean
  /** A due job that nobody takes for this long is given up by the reaper; null: it is not. */
  failsUnlessTakenSec: number | null
}

/** `lastEnd`: why the attempt before ended, where the events tell. */
export function explain(job: JobView, settings: ExplainSettings, lastEnd: string | null = null): Explanation {
  switch (job.status) {
    case 'processing':
      return explainProcessing(job, settings)
    case 'queued':
      return explainQueued(job, settings, lastEnd)
    case 'failed':
      return explainFailed(job, settings)
    case 'done':
      return { now: `done, at attempt ${job.attempt}`, next: 'nothing: done is the end', advice: null, actions: [] }
    case null:
      return {
        now: `its status is ${job.word}, which is none of the four words of this table`,
        next: 'nothing: it is neither claimed nor reaped',
        advice: 'who writes this word? The profile of the table names the four that count',
        actions: [],
      }
    default:
      return job.status satisfies never
  }
}

function explainProcessing(job: JobView, settings: ExplainSettings): Explanation {
  const actions: Action[] = ['end-lease', 'cancel']
  const now = [
    job.holder === null ? 'running, held by nobody known' : `held by ${job.holder}`,
    `attempt ${job.attempt} of ${job.maxAttempts}`,
    heartbeatWords(job),
    leaseWords(job),
  ].join(', ')
  if (!job.endsAt || !job.rule) return { now, actions, ...explainAgeless(settings) }
  const overdueSec = (job.now.getTime() - job.endsAt.getTime()) / 1000
  const when = overdueSec >= 0 ? 'at the next pass of the reaper' : `at ${clock(job.endsAt, job.now)}`
  const why = `${job.rule}: ${RULE_WORDS[job.rule]}`
  const fate =
    job.outcome === 'requeued'
      ? `it is requeued ${when} (${why}) and ${againWords(job, job.endsAt, settings)}`
      : `it fails ${when} (${why}): ${settings.onExpiry === 'fail' ? 'this table never requeues' : 'no attempt is left'}`
  const grace = job.isSpared ? '; the database was away, so its holder still gets the chance to check in' : ''
  const advice = overdueSec > OVERDUE_SEC ? `its time was up ${duration(overdueSec)} ago: is a reaper running?` : null
  return { now, next: `if nothing happens ${fate}${grace}`, advice, actions }
}

/** A reaper that runs takes what is over within a moment; after this long somebody should look at it. */
export const OVERDUE_SEC = 15

/** The pause begins when it is taken, and is a little longer for each than the ladder says, so that not all return at once. */
function againWords({ now, attemptThen }: JobView, endsAt: Date, settings: ExplainSettings): string {
  if (!settings.hasDueTime) return 'may run again at once'
  const taken = Math.max(endsAt.getTime(), now.getTime())
  const again = new Date(taken + backoffAfter(attemptThen, settings.backoffLadderMs))
  return `runs again at ${clock(again, now)} or a little later`
}

function explainAgeless({ canBeGivenTime }: ExplainSettings): Pick<Explanation, 'next' | 'advice'> {
  return canBeGivenTime
    ? {
        next: 'nothing in the row tells its age: the reaper gives it time at its next pass, and takes it when that is over',
        advice: null,
      }
    : {
        next: 'nothing: nothing in the row tells its age, and this table has no column in which to note one',
        advice: 'end its lease by hand if nobody works on it, and give the table a column for the end of leases',
      }
}

function heartbeatWords({ heartbeatAt, rule, now }: JobView): string {
  if (!heartbeatAt) return 'no heartbeat'
  if (heartbeatAt.getTime() > now.getTime() + FUTURE_MS) return 'a heartbeat of the future, which is not believed'
  return `last heartbeat ${since(heartbeatAt, now)}${rule === 'no_heartbeat' ? ', before this run' : ''}`
}

/** A heartbeat further ahead than any clock runs wrong by is a mistake. */
const FUTURE_MS = 60_000

function leaseWords({ leaseUntil, isLeaseOdd, rule, now }: JobView): string {
  if (isLeaseOdd) return 'a lease too far off to be believed'
  if (leaseUntil) return `lease ${untilWords(leaseUntil, now)}`
  return rule === 'lease_expired' ? 'a lease that ended before all time' : 'no lease'
}

function explainQueued(job: JobView, settings: ExplainSettings, lastEnd: string | null): Explanation {
  const { canRaiseAttempts } = settings
  if (job.attempt >= job.maxAttempts) {
    return {
      now: `queued, but ${job.attempt} of ${job.maxAttempts} attempts are used`,
      next: 'nothing: no claim takes it',
      advice: canRaiseAttempts
        ? 'a retry allows one more attempt'
        : 'no attempt is left, and this table has no column to allow more: cancel it, and add it again as a new job',
      actions: canRaiseAttempts ? ['retry', 'cancel'] : ['cancel'],
    }
  }
  const ending = lastEnd === null ? job.failCode && ` with ${job.failCode}` : `: ${inShort(lastEnd)}`
  const last = ending ? `; the last attempt ended${ending}` : ''
  const attempts = `${job.attempt} of ${job.maxAttempts} attempts used${last}`
  if (!job.isDue) {
    const next = job.dueAt
      ? `it may run at ${clock(job.dueAt, job.now)}, ${untilWords(job.dueAt, job.now, 'in')}`
      : 'it waits for ever: its due time is infinity, or as good as that'
    return { now: `queued, ${attempts}`, next, advice: 'a retry makes it due now', actions: ['retry', 'cancel'] }
  }
  const waited = job.dueAt ? `due ${since(job.dueAt, job.now)}` : 'due'
  return {
    now: `queued, ${waited}, ${attempts}`,
    next: `the next free worker for its stage takes it${orElse(job, settings)}`,
    advice: 'if nobody does: is a worker running for this table and stage?',
    actions: ['cancel'],
  }
}

function orElse({ dueAt, now }: JobView, { failsUnlessTakenSec }: ExplainSettings): string {
  if (failsUnlessTakenSec === null || !dueAt) return ''
  const end = new Date(dueAt.getTime() + failsUnlessTakenSec * 1000)
  return end <= now
    ? '; if none does before the next pass of the reaper, it fails (undispatched)'
    : `; if none does by ${clock(end, now)}, it fails (undispatched)`
}

function explainFailed(job: JobView, { canRaiseAttempts }: ExplainSettings): Explanation {
  const { failCode: code, failReason } = job
  const reason = failReason === code || failReason === null ? null : inShort(failReason)
  const why = code && reason ? `${code} (${reason})` : code || reason || 'nothing says why'
  const canRetry = canRaiseAttempts || job.attempt < job.maxAttempts
  return {
    now: `failed: ${why}, after attempt ${job.attempt} of ${job.maxAttempts}`,
    next: 'nothing: a failed job stays as it is',
    advice: canRetry
      ? 'mend the cause, then retry it'
      : 'no attempt is left, and this table has no column to allow more: add it again as a new job',
    actions: canRetry ? ['retry'] : [],
  }
}

/** The first line of a reason, which may be all that a program ever said; the rest stands in the row. */
function inShort(reason: string): string {
  const [line = ''] = reason.trimStart().split(/[\r\n]/, 1)
  const short = line.slice(0, MOST_SAID).toWellFormed()
  return short.length < reason.trim().length ? `${short.trimEnd()}…` : short
}

const MOST_SAID = 160

function since(moment: Date, now: Date): string {
  return `${duration((now.getTime() - moment.getTime()) / 1000)} ago`
}

function untilWords(moment: Date, now: Date, ends = 'ends in'): string {
  const sec = (moment.getTime() - now.getTime()) / 1000
  return sec >= 0 ? `${ends} ${duration(sec)}` : `ended ${duration(-sec)} ago`
}

/** The time of day in UTC, with the date where it is another day. */
export function clock(moment: Date, now: Date): string {
  const [day = '', time = ''] = moment.toISOString().split('T')
  const short = `${time.slice(0, 8)} UTC`
  return now.toISOString().startsWith(day) ? short : `${day} ${short}`
}

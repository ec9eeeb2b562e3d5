/** Where a job is, why, and what happens next, in plain words. The same for the terminal and the page. */
import type { JobView } from '../db/job-view.ts'
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

export interface ExplainSettings {
  onExpiry: 'requeue' | 'fail'
  backoffLadderMs: readonly number[]
  /** A table without a column for the maximum has nothing that a retry could raise. */
  canRaiseAttempts: boolean
}

export function explain(job: JobView, settings: ExplainSettings): Explanation {
  switch (job.status) {
    case 'processing':
      return explainProcessing(job, settings)
    case 'queued':
      return explainQueued(job, settings)
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

function explainProcessing(job: JobView, { onExpiry, backoffLadderMs }: ExplainSettings): Explanation {
  const actions: Action[] = ['end-lease', 'cancel']
  const now = [
    job.holder === null ? 'running, held by nobody known' : `held by ${job.holder}`,
    `attempt ${job.attempt} of ${job.maxAttempts}`,
    job.heartbeatAt ? `last heartbeat ${since(job.heartbeatAt, job.now)}` : 'no heartbeat',
    job.leaseUntil ? `lease ${untilWords(job.leaseUntil, job.now)}` : 'no lease',
  ].join(', ')
  if (!job.endsAt || !job.rule) {
    const next = 'nothing in the row tells its age: the reaper gives it a lease first, and takes it when that ends'
    return { now, next, advice: null, actions }
  }
  const isOver = job.endsAt <= job.now
  const when = isOver ? 'at the next pass of the reaper' : `at ${clock(job.endsAt, job.now)}`
  const attempt = Math.max(job.attempt, 1)
  const isRequeued = onExpiry === 'requeue' && attempt < job.maxAttempts
  const pauseMs = backoffLadderMs[Math.min(attempt, backoffLadderMs.length) - 1] ?? 0
  const again = new Date(Math.max(job.endsAt.getTime(), job.now.getTime()) + pauseMs)
  const why = `${job.rule}: ${RULE_WORDS[job.rule]}`
  const fate = isRequeued
    ? `it is requeued ${when} (${why}) and runs again at ${clock(again, job.now)}`
    : `it fails ${when} (${why}): ${onExpiry === 'fail' ? 'this table never requeues' : 'no attempt is left'}`
  const grace = job.isSpared ? '; the database was away, so its holder still gets the chance to check in' : ''
  const overdueSec = (job.now.getTime() - job.endsAt.getTime()) / 1000
  const advice = overdueSec > OVERDUE_SEC ? `its time was up ${duration(overdueSec)} ago: is a reaper running?` : null
  return { now, next: `if nothing happens ${fate}${grace}`, advice, actions }
}

/** A reaper that runs takes what is over within a moment; after this long somebody should look at it. */
export const OVERDUE_SEC = 15

function explainQueued(job: JobView, { canRaiseAttempts }: ExplainSettings): Explanation {
  if (job.attempt >= job.maxAttempts) {
    return {
      now: `queued, but ${job.attempt} of ${job.maxAttempts} attempts are used`,
      next: 'nothing: no claim takes it',
      advice: canRaiseAttempts ? 'a retry allows one more attempt' : null,
      actions: canRaiseAttempts ? ['retry', 'cancel'] : ['cancel'],
    }
  }
  const last = job.failCode ? `; the last attempt ended with ${job.failCode}` : ''
  const attempts = `${job.attempt} of ${job.maxAttempts} attempts used${last}`
  if (!job.isDue) {
    const next = job.dueAt
      ? `it may run at ${clock(job.dueAt, job.now)}, ${untilWords(job.dueAt, job.now, 'in')}`
      : 'it waits for ever: its due time is infinity'
    return {
      now: `queued, ${attempts}`,
      next,
      advice: 'a retry makes it due now',
      actions: ['retry', 'cancel'],
    }
  }
  const waited = job.dueAt ? `due ${since(job.dueAt, job.now)}` : 'due'
  return {
    now: `queued, ${waited}, ${attempts}`,
    next: 'the next free worker for its stage takes it',
    advice: 'if nobody does: is a worker running for this table and stage?',
    actions: ['cancel'],
  }
}

function explainFailed(job: JobView, { canRaiseAttempts }: ExplainSettings): Explanation {
  const why = job.failCode ?? (job.failReason === null ? 'no code' : '')
  const reason = job.failReason && job.failReason !== job.failCode ? job.failReason : ''
  const canRetry = canRaiseAttempts || job.attempt < job.maxAttempts
  return {
    now: `failed: ${why && reason ? `${why} (${reason})` : why || reason}, after attempt ${job.attempt} of ${job.maxAttempts}`,
    next: 'nothing: a failed job stays as it is',
    advice: canRetry
      ? 'mend the cause, then retry it'
      : 'no attempt is left, and this table has no column to allow more',
    actions: canRetry ? ['retry'] : [],
  }
}

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

/** Where a job is, why, and what happens next, in plain words. The same for the terminal and the page. */
import type { JobView } from '../db/job-view.ts'
import { duration } from '../job/duration.ts'

export interface Explanation {
  /** What is. */
  now: string
  /** What happens next, if nobody does anything. */
  next: string
  /** What can be done about it. */
  todo: string | null
}

export interface ExplainSettings {
  onExpiry: 'requeue' | 'fail'
  backoffLadderMs: readonly number[]
}

const RULES: Record<NonNullable<JobView['rule']>, string> = {
  lease_expired: 'its lease ends',
  heartbeat_stale: 'its last heartbeat is too old',
  no_heartbeat: 'it has neither lease nor heartbeat, and started too long ago',
  run_deadline: 'it runs for longer than it may',
  worker_exit: 'its worker has ended',
}

export function explain(job: JobView, settings: ExplainSettings): Explanation {
  switch (job.status) {
    case 'processing':
      return explainProcessing(job, settings)
    case 'queued':
      return explainQueued(job)
    case 'failed':
      return {
        now: `failed: ${job.failCode ?? 'no code'}${job.failReason ? ` (${job.failReason})` : ''}, after attempt ${job.attempt} of ${job.maxAttempts}`,
        next: 'nothing: a failed job stays as it is',
        todo: `retry ${job.id}`,
      }
    case 'done':
      return { now: `done, at attempt ${job.attempt}`, next: 'nothing: done is the end', todo: null }
    case null:
      return {
        now: `its status is ${job.word}, which is none of the four words of this table`,
        next: 'nothing: it is neither claimed nor reaped',
        todo: null,
      }
  }
}

function explainProcessing(job: JobView, { onExpiry, backoffLadderMs }: ExplainSettings): Explanation {
  const now = [
    job.holder === null ? 'running, held by nobody known' : `held by ${job.holder}`,
    `attempt ${job.attempt} of ${job.maxAttempts}`,
    job.heartbeatAt ? `last heartbeat ${since(job.heartbeatAt, job.now)}` : 'no heartbeat',
    job.leaseUntil ? `lease ${untilWords(job.leaseUntil, job.now)}` : 'no lease',
  ].join(', ')
  if (!job.endsAt || !job.rule) {
    return {
      now,
      next: 'nothing in the row tells its age; the reaper gives it a lease first, and takes it when that ends',
      todo: `cancel ${job.id}`,
    }
  }
  const when = job.endsAt <= job.now ? 'at the next pass of the reaper' : `at ${clock(job.endsAt, job.now)}`
  const attempt = Math.max(job.attempt, 1)
  const isRequeued = onExpiry === 'requeue' && attempt < job.maxAttempts
  const pauseMs = backoffLadderMs[Math.min(attempt, backoffLadderMs.length) - 1] ?? 0
  const again = new Date(Math.max(job.endsAt.getTime(), job.now.getTime()) + pauseMs)
  const why = `${job.rule}: ${RULES[job.rule]}`
  const next = isRequeued
    ? `if nothing happens it is requeued ${when} (${why}) and runs again from ${clock(again, job.now)} on`
    : `if nothing happens it fails ${when} (${why}); ${onExpiry === 'fail' ? 'this table never requeues' : 'no attempt is left'}`
  return { now, next, todo: `end-lease ${job.id}, or cancel ${job.id}` }
}

function explainQueued(job: JobView): Explanation {
  if (job.attempt >= job.maxAttempts) {
    return {
      now: `queued, but attempt ${job.attempt} of ${job.maxAttempts} is used up`,
      next: 'nothing: no claim takes it',
      todo: `retry ${job.id}, which allows one more attempt, or cancel ${job.id}`,
    }
  }
  const last = job.failCode ? `; the last attempt ended with ${job.failCode}` : ''
  const attempts = `${job.attempt} of ${job.maxAttempts} attempts used${last}`
  if (!job.isDue) {
    return {
      now: `queued, ${attempts}`,
      next: job.dueAt
        ? `it runs from ${clock(job.dueAt, job.now)} on, ${untilWords(job.dueAt, job.now, 'in')}`
        : 'it waits for ever: its due time is infinity',
      todo: `retry ${job.id} makes it due now`,
    }
  }
  const waited = job.dueAt ? `due ${since(job.dueAt, job.now)}` : 'due'
  return {
    now: `queued, ${waited}, ${attempts}`,
    next: 'the next free worker for its stage takes it',
    todo: 'if nobody does: is a worker running for this table and stage?',
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
function clock(moment: Date, now: Date): string {
  const [day = '', time = ''] = moment.toISOString().split('T')
  const short = `${time.slice(0, 8)} UTC`
  return now.toISOString().startsWith(day) ? short : `${day} ${short}`
}

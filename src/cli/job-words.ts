/** A job in the few words of a table's cells. */
import type { JobView } from '../db/job-view.ts'
import { duration } from '../job/duration.ts'
import { shareLeft } from '../operator/time-left.ts'
import type { Style } from './output.ts'
import type { Column } from './table.ts'

export const ID: Column<JobView> = { title: 'id', value: ({ id }) => id, isWhole: true }
export const TABLE_NAME: Column<JobView> = { title: 'table', value: ({ table }) => table, isTold: 'when it differs' }
export const STAGE: Column<JobView> = {
  title: 'stage',
  value: ({ stage }) => stage ?? '',
  isTold: 'when there is room',
}
export const HOLDER: Column<JobView> = { title: 'holder', value: ({ holder }) => holder ?? '' }
export const ATTEMPT: Column<JobView> = {
  title: 'attempt',
  value: ({ attempt, maxAttempts }) => `${attempt} of ${maxAttempts}`,
  isTold: 'when there is room',
}

const STATUS_STYLES = { queued: null, processing: 'bold', done: 'green', failed: 'red' } as const

/** A word that is none of our four is shown as it stands there. */
export const STATUS: Column<JobView> = {
  title: 'status',
  isWhole: true,
  value: ({ status, word }) => status ?? word,
  style: ({ status }) => (status === null ? 'yellow' : STATUS_STYLES[status]),
}

/** What a person would ask next: when does it run, when does it end. */
export function whenWords(job: JobView): string {
  if (job.status === 'processing') return leftWords(job)
  if (job.status !== 'queued') return ''
  if (job.isDue) return job.dueAt ? `due ${age(job.dueAt, job.now)} ago` : 'due'
  return job.dueAt ? `in ${duration(secondsBetween(job.now, job.dueAt))}` : 'never'
}

export function leftWords({ endsAt, now, isSpared }: JobView): string {
  if (!endsAt) return 'no age'
  const sec = secondsBetween(now, endsAt)
  if (sec > 0) return `${duration(sec)} left`
  return isSpared ? 'spared' : `over for ${duration(-sec)}`
}

export function age(moment: Date, now: Date): string {
  return duration(secondsBetween(moment, now))
}

export function secondsBetween(from: Date, to: Date): number {
  return (to.getTime() - from.getTime()) / 1000
}

export function urgency(job: JobView): Style | null {
  const share = shareLeft(job, job.now.getTime())
  if (share === null) return job.endsAt && job.endsAt > job.now ? null : 'red'
  return share === 0 ? 'red' : share < 1 / 3 ? 'yellow' : 'green'
}

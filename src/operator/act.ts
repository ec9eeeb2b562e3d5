/** What an operator does to a job: guarded by what the person saw, told in the job's events, published where workers wait. */
import type { Database } from '../db/client.ts'
import { describeError, mayBeOneRow } from '../db/errors.ts'
import type { Seen } from '../db/job-filter.ts'
import { type JobView, viewJob } from '../db/job-view.ts'
import { cancelJobs, type Deed, retryJobs, type Target } from '../db/operate.ts'
import { endLease } from '../db/reap.ts'
import { retryLostRaces } from '../db/retry.ts'
import type { JobTable } from '../db/table.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import { cleanText } from '../job/failure.ts'
import { refusal, type ServiceResult, success } from '../result.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type Action, explain } from './explain.ts'
import { orMalformed, type Watched } from './watched.ts'

export type ActCode = 'NOT_FOUND' | 'NOT_ALLOWED' | 'CHANGED' | 'NO_REASON'

/** What became of a job that was acted upon. */
export interface Acted {
  table: string
  id: string
  action: Action
  /** How the job is now. */
  job: JobView | null
}

export const MAX_REASON = 500
const MAX_ACTOR = 200

/** What can be done to all that match. */
export type BulkAction = Extract<Action, 'retry' | 'cancel'>

export interface Hands {
  db: Database
  maxAttempts: number
  dispatch: Dispatcher | undefined
  metrics: Metrics | undefined
  log: Log
}

/** Where a moved job may run again, and from when. */
export interface Moved {
  id: string
  dueAt: Date | null
  isQueued: boolean
}

/** One job. The statement's own guard decides; what is read before and after is for words only. */
export async function actOnOne(
  hands: Hands,
  each: Watched,
  action: Action,
  { id: asked, seen }: { id: string; seen?: Seen | undefined },
  given: Deed,
): Promise<ServiceResult<Acted, ActCode>> {
  const deed = cleanDeed(given)
  if (deed.reason === '') return NO_REASON
  const { db } = hands
  const view = (id: string): Promise<JobView | null> =>
    each.handle.use((table) => viewJob(db, table, id, each.settings))
  const before = await orMalformed(view(asked), null)
  if (!before) return refusal('NOT_FOUND', `there is no job ${cleanText(asked, 200)} in ${each.name}`)
  if (seen && (seen.status !== before.status || seen.attempt !== before.attempt)) return changed(before, seen)
  if (before.status === null || !mayBeDone(action, before, each)) return notAllowed(action, before, each)
  const { id, status, attempt, holder } = before
  const target = { id, seen: seen ?? { status, attempt, holder } }
  const moved = await refusedAsValue(each.handle.use((table) => moveOne(hands, each, table, action, target, deed)))
  if (!moved.ok) return moved
  if (moved.value.length === 0) {
    const now = await view(id)
    return now ? changed(now, target.seen) : refusal('NOT_FOUND', `job ${id} is gone`)
  }
  await tell(hands, each, action, moved.value, deed)
  // It is done, whether or not the database answers once more.
  const after = await view(id).catch(() => null)
  return success({ table: each.name, id, action, job: after })
}

async function moveOne(
  { db, maxAttempts }: Hands,
  { settings }: Watched,
  table: JobTable,
  action: Action,
  target: { id: string; seen: Seen },
  deed: Deed,
): Promise<Moved[]> {
  switch (action) {
    case 'retry':
    case 'cancel':
      return move(db, table, action, target, deed, maxAttempts)
    case 'end-lease': {
      const { actor, reason: cause } = deed
      const rows = await retryLostRaces(() => endLease(db, table, settings, { ...target, actor, cause }))
      return rows.map(({ id, dueAt, outcome }) => ({ id, dueAt, isQueued: outcome === 'requeued' }))
    }
    default:
      return action satisfies never
  }
}

export async function move(
  db: Database,
  table: JobTable,
  action: BulkAction,
  target: Target,
  deed: Deed,
  maxAttempts: number,
): Promise<Moved[]> {
  const isRetry = action === 'retry'
  const rows = await retryLostRaces(() =>
    isRetry ? retryJobs(db, table, target, { ...deed, maxAttempts }) : cancelJobs(db, table, target, deed),
  )
  return rows.map(({ id, dueAt }) => ({ id, dueAt, isQueued: isRetry }))
}

/** After the commit. */
export async function tell(
  { dispatch, metrics, log }: Hands,
  { name }: Watched,
  action: Action,
  moved: readonly Moved[],
  deed: Deed,
): Promise<void> {
  metrics?.count('operator_actions_total', { table: name, action: action.replace('-', '_') }, moved.length)
  for (const { id: jobId } of moved) log.info({ table: name, jobId, ...deed }, WORDS[action].done)
  const offers = moved.filter(({ isQueued }) => isQueued)
  await publishJobs(dispatch, name, offers, { log, metrics })
}

/** A constraint or trigger of the team's own has the last word, and its words are the answer. */
async function refusedAsValue<T>(asked: Promise<T>): Promise<ServiceResult<T, 'NOT_ALLOWED'>> {
  try {
    return success(await asked)
  } catch (error) {
    if (!mayBeOneRow(error)) throw error
    return refusal('NOT_ALLOWED', `the table refuses it: ${describeError(error)}`)
  }
}

export const WORDS: Record<Action, { done: string; cannot: string; refused: string }> = {
  retry: { done: 'job retried by hand', cannot: 'it cannot be retried', refused: 'the table refuses a retry' },
  cancel: { done: 'job cancelled by hand', cannot: 'it cannot be cancelled', refused: 'the table refuses a cancel' },
  'end-lease': { done: 'lease ended by hand', cannot: 'it has no lease to end', refused: 'the table refuses it' },
}

export const NO_REASON = refusal('NO_REASON', 'say why: expected a reason, got none')

function mayBeDone(action: Action, job: JobView, { explaining }: Watched): boolean {
  // A retry of a job that is due already changes nothing for the worse: its time is now either way, and it is offered again.
  const isHarmless = action === 'retry' && job.status === 'queued' && job.attempt < job.maxAttempts
  return isHarmless || explain(job, explaining).actions.includes(action)
}

function notAllowed(
  action: Action,
  job: JobView,
  { explaining }: Watched,
): { ok: false; error: string; code: ActCode } {
  return refusal('NOT_ALLOWED', `${WORDS[action].cannot}: ${explain(job, explaining).now}`)
}

function changed(now: JobView, seen: Seen): { ok: false; error: string; code: 'CHANGED' } {
  const words = (status: string, attempt: number): string => `${status} at attempt ${attempt}`
  const [then, today] = [words(seen.status, seen.attempt), words(now.status ?? now.word, now.attempt)]
  const what = then === today ? `it is ${today}, but not as you saw it` : `it was ${then}, now it is ${today}`
  return refusal('CHANGED', `it has changed since you looked: ${what}`)
}

export function cleanDeed({ actor, reason }: Deed): Deed {
  return { actor: cleanText(actor, MAX_ACTOR) || 'operator', reason: cleanText(reason, MAX_REASON) }
}

/** Everything an operator can see and do, for the command line and the dashboard alike. */
import type { Database } from '../db/client.ts'
import { describeError, isMalformedId } from '../db/errors.ts'
import type { JobFilter } from '../db/job-filter.ts'
import {
  countJobs,
  type FailureGroup,
  groupFailures,
  type HolderView,
  type JobView,
  listHolders,
  listJobs,
  listLeases,
  readFields,
  type RowField,
  viewJob,
} from '../db/job-view.ts'
import { type Look, lookAt } from '../db/look.ts'
import { type TableHandle, tableHandle } from '../db/open-once.ts'
import { cancelJobs, type Deed, type OperatedRow, retryJobs, type Seen, type Target } from '../db/operate.ts'
import type { Profile } from '../db/profile.ts'
import { endLease, EVERY_DUE_ROW, previewExpired, type ReapedRow, type ReapSettings } from '../db/reap.ts'
import { retryLostRaces } from '../db/retry.ts'
import { type GeneralRules, graceSecFor, rulesFor } from '../db/rules.ts'
import type { JobTable } from '../db/table.ts'
import { countTold, readTimeline, type ToldEvent } from '../db/timeline.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import { cleanText } from '../job/failure.ts'
import { refusal, type ServiceResult, success } from '../result.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type AttemptView, attemptsOf } from './attempts.ts'
import { type DrainPlan, drainPlan } from './drain.ts'
import { type Action, explain, type Explanation } from './explain.ts'
import { type HealthReport, healthOf, type TableState } from './health.ts'
import { createHistory, type History, type TableHistory } from './history.ts'

export interface OperatorOptions extends GeneralRules {
  db: Database
  tables: readonly Profile[]
  heartbeatSec: number
  maxAttempts: number
  backoffLadderMs: readonly number[]
  queuedOrphanSec: number
  /** Publishes what becomes due by hand; without one, workers poll. */
  dispatch?: Dispatcher | undefined
  metrics?: Metrics | undefined
  log?: Log | undefined
}

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

export interface JobDetails {
  job: JobView
  explanation: Explanation
  attempts: AttemptView[]
  timeline: ToldEvent[]
  fields: RowField[]
}

/** A page of jobs; `next` is the `after` of the next one, null on the last. */
export interface JobPage {
  jobs: JobView[]
  next: string | null
}

export interface FailureGroups {
  table: string
  groups: FailureGroup[]
}

export type ActCode = 'NOT_FOUND' | 'NOT_ALLOWED' | 'CHANGED' | 'NO_REASON'

/** What became of a job that was acted upon. */
export interface Acted {
  table: string
  id: string
  action: Action
  /** How the job is now. */
  job: JobView | null
}

export interface Operator {
  tables: readonly string[]
  overview(): Promise<Overview>
  jobs(table: string, page: { filter: JobFilter; after?: string | null; limit?: number }): Promise<JobPage>
  /** Running jobs of all tables, or of one, by what is reaped next. */
  leases(options?: { table?: string; holder?: string | null; limit?: number }): Promise<JobView[]>
  /** The job in every table that has one with this id. */
  find(id: string, table?: string): Promise<JobDetails[]>
  events(table: string, id: string, limit?: number): Promise<ToldEvent[]>
  failures(table?: string): Promise<FailureGroups[]>
  workers(table?: string): Promise<{ table: string; holders: HolderView[] }[]>
  /** What a pass of the reaper would do now, and by which rule. */
  dryRun(table: string, limit?: number): Promise<ReapedRow[]>
  drain(shutdownTimeoutSec: number): Promise<DrainPlan>
  count(table: string, filter: JobFilter): Promise<number>
  /** One job, guarded by what the person saw. */
  act(
    action: Action,
    job: { table: string; id: string; seen?: Seen | undefined },
    deed: Deed,
  ): Promise<ServiceResult<Acted, ActCode>>
  /** All that match: failed ones are retried, waiting ones cancelled. Answers how many; never more than `atMost`. */
  actOnAll(
    action: BulkAction,
    which: { table: string; filter: JobFilter; atMost: number },
    deed: Deed,
    onProgress?: (moved: number) => void,
  ): Promise<ServiceResult<number, ActCode>>
  /** Reads what was told since the last time, for the plots. */
  sampleHistory(): Promise<void>
  history(): TableHistory[]
}

export type BulkAction = Extract<Action, 'retry' | 'cancel'>
/** The status an action on all that match begins at. */
export const BULK_STATUS = { retry: 'failed', cancel: 'queued' } as const satisfies Record<
  BulkAction,
  JobView['status']
>

export const MAX_REASON = 500
const MAX_ACTOR = 200
const PAGE = 50
const MOST_ROWS = 500
const TIMELINE = 500
const COUNT_CAP = 100_000
/** One statement of a bulk action: short enough that nobody waits for its locks. */
const BULK_BATCH = 500

interface Watched {
  name: string
  profile: Profile
  handle: TableHandle
  settings: ReapSettings
  orphanSec: number
  history: History
}

export function createOperator(options: OperatorOptions): Operator {
  const { db, metrics, dispatch, log = silentLog, maxAttempts } = options
  const watched = options.tables.map((profile): Watched => {
    const outage = { graceSec: graceSecFor(profile, options.heartbeatSec), contactBackAt: null }
    return {
      name: profile.table,
      profile,
      handle: tableHandle(db, profile),
      settings: { rules: { ...rulesFor(profile, options), outage }, maxAttempts, ladderMs: options.backoffLadderMs },
      orphanSec: profile.policy.queuedOrphanSec ?? options.queuedOrphanSec,
      history: createHistory(profile.table, profile.events?.names ?? null),
    }
  })

  function find(name: string): Watched {
    const found = watched.find((each) => each.name === name)
    if (!found) throw new UnknownTable(name, watched)
    return found
  }

  const chosen = (only?: string): Watched[] => (only === undefined ? watched : [find(only)])

  const look = ({ handle, settings, orphanSec }: Watched): Promise<Look> =>
    handle.use((table) => lookAt(db, table, { rules: settings.rules, maxAttempts, orphanSec }))

  async function overviewOf(each: Watched): Promise<TableOverview> {
    try {
      return overviewFrom(each.name, await look(each))
    } catch (error) {
      return { ...UNKNOWN, table: each.name, obstacle: `${each.name}: ${describeError(error)}` }
    }
  }

  async function details(each: Watched, id: string): Promise<JobDetails | null> {
    const { handle, profile, settings } = each
    return orMalformed(
      handle.use(async (table) => {
        const job = await viewJob(db, table, id, settings)
        if (!job) return null
        const timeline = await readTimeline(db, table, { id, limit: TIMELINE })
        const fields = await readFields(db, table, id)
        const attempts = profile.events ? attemptsOf(timeline, profile.events.names) : []
        return { job, explanation: explainIn(each, job), attempts, timeline, fields }
      }),
      null,
    )
  }

  function explainIn({ profile, settings }: Watched, job: JobView): Explanation {
    return explain(job, {
      onExpiry: profile.policy.onExpiry,
      backoffLadderMs: settings.ladderMs,
      canRaiseAttempts: profile.columns.maxAttempts !== null,
    })
  }

  /** The statement's own guard decides; what is read before and after is for words only. */
  async function actOn(
    each: Watched,
    table: JobTable,
    action: Action,
    { id, seen }: { id: string; seen?: Seen | undefined },
    deed: Deed,
  ): Promise<ServiceResult<Acted, ActCode>> {
    const before = await viewJob(db, table, id, each.settings)
    if (!before) return refusal('NOT_FOUND', `there is no job ${id} in ${each.name}`)
    const wanted = seen ?? { status: before.status ?? 'done', attempt: before.attempt }
    if (wanted.status !== before.status || wanted.attempt !== before.attempt) return changed(before, wanted)
    if (!explainIn(each, before).actions.includes(action) && !isHarmlessRetry(action, before)) {
      return refusal('NOT_ALLOWED', `${WORDS[action].cannot}: it is ${explainIn(each, before).now}`)
    }
    const moved = await retryLostRaces(() => move(each, table, action, { id, seen: wanted }, deed))
    const after = await viewJob(db, table, id, each.settings)
    if (moved.length === 0) return after ? changed(after, wanted) : refusal('NOT_FOUND', `job ${id} is gone`)
    await tell(each, action, moved, deed)
    return success({ table: each.name, id, action, job: after })
  }

  function move(
    { settings }: Watched,
    table: JobTable,
    action: Action,
    target: { id: string; seen: Seen },
    deed: Deed,
  ): Promise<OperatedRow[]> {
    const { actor, reason: cause } = deed
    switch (action) {
      case 'retry':
        return retryJobs(db, table, target, { ...deed, maxAttempts })
      case 'cancel':
        return cancelJobs(db, table, target, deed)
      case 'end-lease':
        return endLease(db, table, settings, { id: target.id, attempt: target.seen.attempt, actor, cause })
      default:
        return action satisfies never
    }
  }

  /** After the commit. */
  async function tell({ name }: Watched, action: Action, moved: readonly OperatedRow[], deed: Deed): Promise<void> {
    metrics?.count('operator_actions_total', { table: name, action: action.replace('-', '_') }, moved.length)
    for (const { id: jobId } of moved) log.info({ table: name, jobId, ...deed }, WORDS[action].done)
    // An ended lease of a job without attempts left is not due again.
    const offers = action === 'cancel' ? [] : moved.filter(({ dueAt }) => action === 'retry' || dueAt !== null)
    await publishJobs(dispatch, name, offers, { log, metrics })
  }

  return {
    tables: watched.map(({ name }) => name),
    async overview() {
      const tables = await Promise.all(watched.map(overviewOf))
      return { at: new Date(), health: healthOf(tables), tables }
    },
    async jobs(name, { filter, after = null, limit = PAGE }) {
      const { handle, settings } = find(name)
      const size = Math.min(limit, MOST_ROWS)
      const found = await orMalformed(
        handle.use((table) => listJobs(db, table, { filter, after, limit: size + 1 }, settings)),
        [],
      )
      const jobs = found.slice(0, size)
      return { jobs, next: found.length > size ? (jobs.at(-1)?.id ?? null) : null }
    },
    async leases({ table: only, holder, limit = MOST_ROWS } = {}) {
      const lists = await Promise.all(
        chosen(only).map(({ handle, settings }) =>
          handle.use((table) => listLeases(db, table, { holder, limit: Math.min(limit, MOST_ROWS) }, settings)),
        ),
      )
      const end = ({ endsAt }: JobView): number => endsAt?.getTime() ?? Infinity
      return lists
        .flat()
        .toSorted((a, b) => (end(a) === end(b) ? 0 : end(a) - end(b)))
        .slice(0, limit)
    },
    async find(id, only) {
      const found = await Promise.all(chosen(only).map((each) => details(each, id)))
      return found.filter((each) => each !== null)
    },
    async events(name, id, limit = TIMELINE) {
      return orMalformed(
        find(name).handle.use((table) => readTimeline(db, table, { id, limit })),
        [],
      )
    },
    async failures(only) {
      return Promise.all(
        chosen(only).map(async ({ name, handle }) => ({
          table: name,
          groups: await handle.use((table) => groupFailures(db, table, MOST_ROWS)),
        })),
      )
    },
    async workers(only) {
      return Promise.all(
        chosen(only).map(async ({ name, handle, settings }) => ({
          table: name,
          holders: await handle.use((table) => listHolders(db, table, MOST_ROWS, settings)),
        })),
      )
    },
    async dryRun(name, limit = MOST_ROWS) {
      const { handle, settings } = find(name)
      return handle.use((table) => previewExpired(db, table, settings, { ...EVERY_DUE_ROW, limit }))
    },
    async drain(shutdownTimeoutSec) {
      return drainPlan(await this.leases({ limit: MOST_ROWS }), shutdownTimeoutSec)
    },
    async count(name, filter) {
      return orMalformed(
        find(name).handle.use((table) => countJobs(db, table, filter, COUNT_CAP)),
        0,
      )
    },
    async act(action, { table: name, id, seen }, deed) {
      const each = find(name)
      const given = cleanDeed(deed)
      if (given.reason === '') return NO_REASON
      return orMalformed<ServiceResult<Acted, ActCode>>(
        each.handle.use((table) => actOn(each, table, action, { id, seen }, given)),
        refusal('NOT_FOUND', `there is no job ${id} in ${name}`),
      )
    },
    async actOnAll(action, { table: name, filter, atMost }, deed, onProgress) {
      const each = find(name)
      const given = cleanDeed(deed)
      if (given.reason === '') return NO_REASON
      let moved = 0
      while (moved < atMost) {
        const target: Target = { filter, limit: Math.min(BULK_BATCH, atMost - moved) }
        const rows = await each.handle.use((table) =>
          retryLostRaces(() =>
            action === 'retry'
              ? retryJobs(db, table, target, { ...given, maxAttempts })
              : cancelJobs(db, table, target, given),
          ),
        )
        if (rows.length === 0) break
        moved += rows.length
        await tell(each, action, rows, given)
        onProgress?.(moved)
      }
      return success(moved)
    },
    async sampleHistory() {
      await Promise.all(
        watched.map(async (each) => {
          const { queued, processing } = await look(each)
          each.history.addDepth(new Date(), { queued, processing })
          each.history.addTold(await each.handle.use((table) => countTold(db, table, each.history.cursor())))
        }),
      )
    },
    history: () => watched.map(({ history }) => history.show(new Date())),
  }
}

/** Asked for a table that is not among those in force. */
export class UnknownTable extends Error {
  constructor(name: string, watched: readonly { name: string }[]) {
    super(`there is no table ${name} here, only ${watched.map((each) => each.name).join(', ')}`)
    this.name = 'UnknownTable'
  }
}

const WORDS: Record<Action, { done: string; cannot: string }> = {
  retry: { done: 'job retried by hand', cannot: 'it cannot be retried' },
  cancel: { done: 'job cancelled by hand', cannot: 'it cannot be cancelled' },
  'end-lease': { done: 'lease ended by hand', cannot: 'it has no lease to end' },
}

const NO_REASON = refusal('NO_REASON', 'say why: expected a reason, got none')

/** A retry of a job that is due already changes nothing for the worse: its time is now either way. */
function isHarmlessRetry(action: Action, { status, attempt, maxAttempts }: JobView): boolean {
  return action === 'retry' && status === 'queued' && attempt < maxAttempts
}

function changed(now: JobView, seen: Seen): { ok: false; error: string; code: 'CHANGED' } {
  return refusal(
    'CHANGED',
    `it has changed since you looked: it was ${seen.status} at attempt ${seen.attempt}, now it is ${now.status ?? now.word} at attempt ${now.attempt}`,
  )
}

function cleanDeed({ actor, reason }: Deed): Deed {
  return { actor: cleanText(actor, MAX_ACTOR) || 'operator', reason: cleanText(reason, MAX_REASON) }
}

/** An id that does not even fit the column's type is the id of no job. */
async function orMalformed<T>(asked: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await asked
  } catch (error) {
    if (isMalformedId(error)) return otherwise
    throw error
  }
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
  oldestDueSec: null,
  nextDeadlineSec: null,
}

function overviewFrom(table: string, seen: Look): TableOverview {
  const { queued, due, processing, held, expired, overdueSec, spared, ungoverned, failed } = seen
  const { undispatched, oldestDueSec, nextDeadlineSec } = seen
  const done = Math.max(0, seen.finishedEstimate - queued - processing - failed)
  const running = { processing, held, expired, overdueSec, spared, ungoverned, nextDeadlineSec }
  return { table, obstacle: null, queued, due, undispatched, oldestDueSec, ...running, failed, done }
}

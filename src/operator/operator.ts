/** Everything an operator can see and do, for the command line and the dashboard alike. */
import { describeError } from '../db/errors.ts'
import type { JobFilter, Seen } from '../db/job-filter.ts'
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
import type { Deed } from '../db/operate.ts'
import { EVERY_DUE_ROW, previewExpired, type ReapedRow } from '../db/reap.ts'
import { withoutProgressRuns } from './progress-runs.ts'
import { countTold, readTimeline, type ToldEvent } from '../db/timeline.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import type { ServiceResult } from '../result.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type ActCode, type Acted, actOnOne, type BulkAction, type Hands } from './act.ts'
import { actOnAll, type OnProgress } from './act-on-all.ts'
import { attemptEvents, attemptsOf, type AttemptView } from './attempts.ts'
import { type DrainPlan, drainPlan } from './drain.ts'
import { type Action, explain, type Explanation } from './explain.ts'
import { healthOf } from './health.ts'
import type { TableHistory } from './history.ts'
import { type Overview, overviewFrom, type TableOverview, overviewWithout } from './overview.ts'
import { askAll, findTable, orMalformed, type Watched, type WatchOptions, watchTables } from './watched.ts'

export { type ActCode, type Acted, type BulkAction } from './act.ts'
export { BULK_STATUS } from './act-on-all.ts'
export type { Overview, TableOverview } from './overview.ts'
export { UnknownTable } from './watched.ts'

export interface OperatorOptions extends WatchOptions {
  /** Publishes what becomes due by hand; without one, workers poll. */
  dispatch?: Dispatcher | undefined
  metrics?: Metrics | undefined
  log?: Log | undefined
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
  /** All that match: failed ones are retried, waiting ones cancelled. Answers how many; never more than `atMost`, or 100,000. */
  actOnAll(
    action: BulkAction,
    which: { table: string; filter: JobFilter; atMost: number },
    deed: Deed,
    onProgress?: OnProgress,
  ): Promise<ServiceResult<number, ActCode>>
  /** Reads what was told since the last time, for the plots. */
  sampleHistory(): Promise<void>
  history(): TableHistory[]
}

const PAGE = 50
const MOST_ROWS = 500
/** What a plan for a deploy looks at, and a dry run when asked for more. */
const MOST_RUNNING = 10_000
const TIMELINE = 500
const COUNT_CAP = 100_000
/** How often a sample reads on when more was told since the last one than it reads at once. */
const MOST_READINGS = 5

export function createOperator(options: OperatorOptions): Operator {
  const { db, log = silentLog, maxAttempts } = options
  const watched = watchTables(options)
  const hands: Hands = { db, maxAttempts, dispatch: options.dispatch, metrics: options.metrics, log }
  /** By how much the database's clock is ahead of ours. */
  let aheadMs = 0

  async function look({ handle, settings, orphanSec }: Watched): Promise<Look> {
    const seen = await handle.use((table) => lookAt(db, table, { rules: settings.rules, maxAttempts, orphanSec }))
    aheadMs = seen.now * 1000 - Date.now()
    return seen
  }

  async function overviewOf(each: Watched): Promise<TableOverview> {
    try {
      return overviewFrom(each.name, await look(each))
    } catch (error) {
      return overviewWithout(each.name, error)
    }
  }

  const chosen = (only: string | undefined): Watched[] => (only === undefined ? watched : [findTable(watched, only)])

  async function details(each: Watched, asked: string): Promise<JobDetails | null> {
    const { handle, profile, settings, explaining } = each
    const job = await orMalformed(
      handle.use((table) => viewJob(db, table, asked, settings)),
      null,
    )
    if (!job) return null
    const { id } = job
    const names = profile.events?.names
    const read = (types: readonly string[] | null): Promise<ToldEvent[]> =>
      handle.use((table) => readTimeline(db, table, { id, limit: TIMELINE, types }))
    // Asked for by their types: much progress must not push the beginning of its own attempt out of sight.
    const attempts = names ? attemptsOf(await read(attemptEvents(names)), names) : []
    const fields = await handle.use((table) => readFields(db, table, id))
    const last = attempts.at(-1)
    const lastEnd = last?.attempt === job.attempt ? (last.reason ?? last.code) : null
    const timeline = withoutProgressRuns(await read(null), names?.progress ?? null)
    return { job, explanation: explain(job, explaining, lastEnd), attempts, timeline, fields }
  }

  async function leases(
    only: string | undefined,
    holder: string | null | undefined,
    limit: number,
  ): Promise<JobView[]> {
    const { answers } = await askAll(chosen(only), ({ handle, settings }) =>
      handle.use((table) => listLeases(db, table, { holder, limit }, settings)),
    )
    return answers.flat().toSorted(soonestFirst).slice(0, limit)
  }

  async function sample(each: Watched): Promise<void> {
    try {
      const { queued, processing } = await look(each)
      for (let reading = 0, isBehind = true; isBehind && reading < MOST_READINGS; reading += 1) {
        const told = await each.handle.use((table) => countTold(db, table, each.history.cursor()))
        each.history.addTold(told)
        isBehind = told?.isBehind ?? false
      }
      each.history.addDepth(databaseTime(), { queued, processing })
    } catch (error) {
      // A gap in the plot says enough, and one table must not cost the others theirs.
      log.debug({ table: each.name, error: describeError(error) }, 'no sample for the plots')
    }
  }

  const databaseTime = (): Date => new Date(Date.now() + aheadMs)

  return {
    tables: watched.map(({ name }) => name),
    async overview() {
      const tables = await Promise.all(watched.map(overviewOf))
      return { at: databaseTime(), health: healthOf(tables), tables }
    },
    async jobs(name, { filter, after = null, limit = PAGE }) {
      const { handle, settings } = findTable(watched, name)
      const size = atMost(limit, PAGE, MOST_ROWS)
      const found = await orMalformed(
        handle.use((table) => listJobs(db, table, { filter, after, limit: size + 1 }, settings)),
        [],
      )
      const jobs = found.slice(0, size)
      return { jobs, next: found.length > size ? (jobs.at(-1)?.id ?? null) : null }
    },
    async leases({ table, holder, limit = MOST_ROWS } = {}) {
      return leases(table, holder, atMost(limit, MOST_ROWS, MOST_ROWS))
    },
    async find(id, only) {
      const { answers, refusals } = await askAll(chosen(only), (each) => details(each, id))
      const found = answers.filter((each) => each !== null)
      const [refused] = refusals
      // It may stand in the very table that could not be asked.
      if (found.length === 0 && refused) throw refused
      return found
    },
    async events(name, id, limit = TIMELINE) {
      const size = atMost(limit, TIMELINE, MOST_RUNNING)
      return orMalformed(
        findTable(watched, name).handle.use((table) => readTimeline(db, table, { id, limit: size })),
        [],
      )
    },
    async failures(only) {
      const { answers } = await askAll(chosen(only), async ({ name, handle }) => ({
        table: name,
        groups: await handle.use((table) => groupFailures(db, table, MOST_ROWS)),
      }))
      return answers
    },
    async workers(only) {
      const { answers } = await askAll(chosen(only), async ({ name, handle, settings }) => ({
        table: name,
        holders: await handle.use((table) => listHolders(db, table, MOST_ROWS, settings)),
      }))
      return answers
    },
    async dryRun(name, limit = MOST_ROWS) {
      const { handle, settings } = findTable(watched, name)
      const size = atMost(limit, MOST_ROWS, MOST_RUNNING)
      return handle.use((table) => previewExpired(db, table, settings, { ...EVERY_DUE_ROW, limit: size }))
    },
    async drain(shutdownTimeoutSec) {
      const running = await leases(undefined, undefined, MOST_RUNNING)
      return drainPlan(running, shutdownTimeoutSec, running.length === MOST_RUNNING)
    },
    async count(name, filter) {
      return orMalformed(
        findTable(watched, name).handle.use((table) => countJobs(db, table, filter, COUNT_CAP)),
        0,
      )
    },
    async act(action, { table, ...job }, deed) {
      return actOnOne(hands, findTable(watched, table), action, job, deed)
    },
    async actOnAll(action, { table, ...which }, deed, onProgress) {
      return actOnAll(hands, findTable(watched, table), action, which, deed, onProgress)
    },
    async sampleHistory() {
      await Promise.all(watched.map(sample))
    },
    history: () => watched.map(({ history }) => history.show(databaseTime())),
  }
}

/** Whole and within bounds, whatever was asked for. */
function atMost(limit: number, usual: number, most: number): number {
  return Math.min(Math.max(Math.trunc(limit) || usual, 1), most)
}

/** Without a time of its end last: nothing is known about it yet. */
export function soonestFirst({ endsAt: a }: JobView, { endsAt: b }: JobView): number {
  const [first, second] = [a?.getTime() ?? Infinity, b?.getTime() ?? Infinity]
  return first === second ? 0 : first - second
}

/** What a worker calls: claim a job, keep its lease alive, finish it. Every write carries the fence of its own claim. */
import { claimDueJobs, claimJobById, type ClaimedRow, readUnclaimed } from '../db/claim.ts'
import type { Database } from '../db/client.ts'
import { describeError, errorCode, isMalformedId, isTransient } from '../db/errors.ts'
import { insertJob } from '../db/enqueue.ts'
import { completeJob, endAttempt, type FinishedRow, readOwnFinish } from '../db/finish.ts'
import { type Fence, renewLeases } from '../db/heartbeat.ts'
import { tableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import { snakeCaseProfile } from '../db/profiles.ts'
import { onceMore, retryLostRaces } from '../db/retry.ts'
import { stagesFor } from '../db/rules.ts'
import { type JobTable, TableRejected } from '../db/table.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import { DEFAULT_BACKOFF_LADDER_MS } from '../job/backoff.ts'
import { classifyFailure, type FailureDetails } from '../job/failure.ts'
import { clampLeaseSec, DEFAULT_SLA_FACTORS, stagePolicy, type StagePolicy } from '../job/stage.ts'
import { refusal, type ServiceResult, success } from '../result.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import { codeLabel, type Metrics } from '../telemetry/metrics.ts'

/** The right to work on a job until a moment in time. Pass it on to whoever heartbeats or finishes in your place. */
export interface Lease {
  table: string
  id: string
  holder: string
  attempt: number
  stage: string | null
  leaseSec: number
  until: Date
}

export interface ClaimedJob {
  lease: Lease
  /** The job's row after the claim, in the table's own spelling. */
  job: Record<string, unknown>
}

/** `UNAVAILABLE`: the database could not be asked; nothing is known, so try again. */
export type ClaimCode = 'NOT_FOUND' | 'NOT_QUEUED' | 'NOT_DUE' | 'NO_ATTEMPTS_LEFT' | 'UNAVAILABLE'
export type LeaseCode = 'LEASE_LOST' | 'UNAVAILABLE'

export interface LeaseOptions {
  db: Database
  table: string | Profile
  stages?: StagePolicy
  maxAttempts?: number
  backoffLadderMs?: readonly number[]
  metrics?: Metrics
  log?: Log
  /** Where jobs that are queued here are published, when workers do not poll. */
  dispatch?: Dispatcher
  /** Off where the caller counts and logs losses itself, once per attempt. */
  tellsLosses?: boolean
}

export interface Leases {
  /** Puts a job into the queue and tells `created`; columns by the table's own names. Answers its id. */
  enqueueJob(columns?: Record<string, unknown>): Promise<ServiceResult<string, 'UNAVAILABLE'>>
  claimJob(id: string, workerId: string, leaseSec?: number): Promise<ServiceResult<ClaimedJob, ClaimCode>>
  claimNext(request: {
    workerId: string
    limit: number
    stages?: string[]
    exceptStages?: string[]
    /** Only these jobs; an id that fits no row is passed over. */
    ids?: readonly string[]
  }): Promise<ServiceResult<ClaimedJob[], 'UNAVAILABLE'>>
  heartbeatJob(job: string | Lease, workerId?: string, leaseSec?: number): Promise<ServiceResult<Lease, LeaseCode>>
  heartbeatJobs(leases: readonly Lease[]): Promise<ServiceResult<Heartbeats, 'UNAVAILABLE'>>
  finishJob(
    job: string | Lease,
    isSuccess: boolean,
    details?: FailureDetails,
  ): Promise<ServiceResult<FinishedRow, LeaseCode>>
}

export interface Heartbeats {
  renewed: Lease[]
  /** Somebody else has these: stop working on them and write nothing. */
  lost: Lease[]
  /** Locked by another transaction just now; the lease is as it was, beat again soon. */
  busy: Lease[]
}

const DEFAULT_STAGES = stagePolicy({
  heartbeatSec: 10,
  factors: DEFAULT_SLA_FACTORS,
  defaultLeaseSec: 300,
  maxRuntimeSec: 21_600,
})

/** How many leases a process remembers, so that a second finish of the same lease is still recognised. */
const REMEMBERED = 10_000

export function createLeases(options: LeaseOptions): Leases {
  const { db, metrics, dispatch, log = silentLog } = options
  const profile = typeof options.table === 'string' ? snakeCaseProfile(options.table) : options.table
  const stages = stagesFor(profile, options.stages ?? DEFAULT_STAGES)
  const maxAttempts = options.maxAttempts ?? 3
  const ladderMs = options.backoffLadderMs ?? DEFAULT_BACKOFF_LADDER_MS
  const handle = tableHandle(db, profile, requireFence)
  const mine = new Map<string, Lease>()
  const warnedStages = new Set<string>()

  function remember(claimed: ClaimedRow, holder: string, askedId = claimed.id): ClaimedJob {
    const { id, attempt, stage, leaseSec, until, row } = claimed
    const lease: Lease = { table: profile.table, id, holder, attempt, stage, leaseSec, until }
    // An id may be spelled in more than one way (an upper-case uuid); both must find the lease.
    for (const key of new Set([id, askedId])) {
      mine.delete(key)
      mine.set(key, lease)
    }
    for (const oldest of mine.keys()) {
      if (mine.size <= REMEMBERED) break
      mine.delete(oldest)
    }
    warnOfUnknownStage(stage)
    log.info({ table: profile.table, jobId: id, attempt, holder, stage, leaseSec }, 'job claimed')
    return { lease, job: row }
  }

  function warnOfUnknownStage(stage: string | null): void {
    if (stage === null || Object.hasOwn(stages.leaseSec, stage) || warnedStages.has(stage) || warnedStages.size >= 20)
      return
    warnedStages.add(stage)
    log.warn(
      { table: profile.table, stage: stage.slice(0, 80), leaseSec: stages.defaultLeaseSec },
      'unknown stage gets the default lease',
    )
  }

  function leaseOf(job: string | Lease, workerId?: string): Lease | null {
    if (typeof job !== 'string') return job.table === profile.table ? job : null
    const lease = mine.get(job)
    return lease && (workerId === undefined || workerId === lease.holder) ? lease : null
  }

  function lost(lease: Lease | null, id: string): { ok: false; error: string; code: 'LEASE_LOST' } {
    if (lease && (options.tellsLosses ?? true)) {
      metrics?.count('worker_lost_leases_total', { table: profile.table })
      log.warn({ table: profile.table, jobId: lease.id, attempt: lease.attempt, holder: lease.holder }, 'lease:lost')
    }
    return refusal('LEASE_LOST', `job ${id} of ${profile.table} is not held under this lease; nothing was written`)
  }

  async function renew(leases: readonly Lease[], waitForLocks: boolean): Promise<Heartbeats> {
    const renewals = await handle.use((table) => onceMore(() => renewLeases(db, table, leases, { waitForLocks })))
    const byFence = new Map(leases.map((lease) => [fenceKey(lease), lease]))
    const result: Heartbeats = { renewed: [], lost: [], busy: [] }
    for (const renewal of renewals) {
      const lease = byFence.get(fenceKey(renewal))
      if (!lease) continue
      metrics?.count('worker_heartbeats_total', { outcome: renewal.state })
      if (renewal.until) lease.until = renewal.until
      result[renewal.state].push(lease)
    }
    return result
  }

  return {
    enqueueJob: (columns = {}) =>
      unlessAway(async () => {
        const id = await handle.use((table) => insertJob(db, table, columns))
        await publishJobs(dispatch, profile.table, [{ id, dueAt: null }], { log, metrics })
        return success(id)
      }),

    claimJob: (id, workerId, leaseSec) =>
      unlessAway(async () => {
        const claimed = await handle.use((table) =>
          retryLostRaces(() => {
            const asked = leaseSec === undefined ? null : clampLeaseSec(leaseSec)
            return claimJobById(db, table, { id, holder: workerId, leaseSec: asked, stages, maxAttempts })
          }).catch(noneIfMalformed),
        )
        if (claimed) return success(remember(claimed, workerId, id))
        return handle.use((table) => explainRefusal(table, id))
      }),

    claimNext: ({ workerId, limit, stages: onlyStages, exceptStages, ids }) =>
      unlessAway(async () => {
        if (limit < 1) return success([])
        const wish = {
          limit: Math.trunc(limit),
          onlyStages: onlyStages ?? null,
          exceptStages: exceptStages ?? null,
        }
        const claim = (among: readonly string[] | null): Promise<ClaimedRow[]> =>
          handle.use((table) =>
            retryLostRaces(() =>
              claimDueJobs(db, table, { holder: workerId, ...wish, ids: among, stages, maxAttempts }),
            ),
          )
        const rows = ids ? await passingOverMalformed(ids, claim) : await claim(null)
        return success(rows.map((row) => remember(row, workerId)))
      }),

    heartbeatJob: (job, workerId, leaseSec) =>
      unlessAway(async () => {
        const lease = leaseOf(job, workerId)
        if (!lease) return lost(null, idOf(job))
        if (leaseSec !== undefined) lease.leaseSec = clampLeaseSec(leaseSec)
        const { renewed } = await renew([lease], true)
        return renewed.length > 0 ? success(lease) : lost(lease, lease.id)
      }, countMissedBeat),

    heartbeatJobs: (leases) =>
      unlessAway(async () => {
        if (leases.length === 0) return success({ renewed: [], lost: [], busy: [] })
        const beats = await renew(leases, false)
        for (const lease of beats.lost) lost(lease, lease.id)
        return success(beats)
      }, countMissedBeat),

    finishJob: (job, isSuccess, details) =>
      unlessAway(async () => {
        const lease = leaseOf(job)
        if (!lease) return lost(null, idOf(job))
        const failure = isSuccess ? null : classifyFailure(details)
        const end = (table: JobTable): Promise<FinishedRow | null> =>
          failure
            ? endAttempt(db, table, lease, { failure, maxAttempts, ladderMs })
            : completeJob(db, table, lease, details?.told)
        const ended = await handle.use((table) =>
          onceMore(() => end(table).catch((error) => rejectFinish(table, lease, error))),
        )
        if (!ended) {
          // Nothing was changed: either we ended it before and the answer was lost, or the lease is somebody else's.
          const before = await handle.use((table) => onceMore(() => readOwnFinish(db, table, lease)))
          return before ? success(before) : lost(lease, lease.id)
        }
        if (ended.status === 'queued')
          metrics?.count('worker_retry_attempts_total', { code: codeLabel(failure?.code ?? '') })
        log.info(
          {
            table: profile.table,
            jobId: lease.id,
            attempt: lease.attempt,
            holder: lease.holder,
            status: ended.status,
            code: failure?.code,
            dueAt: ended.dueAt,
          },
          'job finished',
        )
        if (ended.status === 'queued')
          await publishJobs(dispatch, profile.table, [{ ...ended, id: lease.id }], { log, metrics })
        return success(ended)
      }),
  }

  function countMissedBeat(): void {
    metrics?.count('worker_heartbeats_total', { outcome: 'error' })
  }

  /** A finish that breaks a constraint of the host's would break it again at every attempt: the job fails, with the constraint's name. */
  async function rejectFinish(table: JobTable, lease: Lease, error: unknown): Promise<FinishedRow | null> {
    if (!errorCode(error).startsWith('23')) throw error
    const constraint = (error as { constraint_name?: string }).constraint_name ?? 'a constraint'
    const failure = { code: 'FINISH_REJECTED', reason: `${errorCode(error)} ${constraint}`, permanent: true }
    log.error(
      { table: profile.table, jobId: lease.id, constraint, error: describeError(error) },
      'the finish breaks a constraint; the job fails',
    )
    return endAttempt(db, table, lease, { failure, maxAttempts, ladderMs })
  }

  async function explainRefusal(table: JobTable, id: string): Promise<ServiceResult<ClaimedJob, ClaimCode>> {
    const state = await readUnclaimed(db, table, { id, maxAttempts }).catch(noneIfMalformed)
    if (!state) return refusal('NOT_FOUND', `there is no job ${id} in ${profile.table}`)
    if (state.hasLiveLease) metrics?.count('worker_duplicate_skips_total', {})
    if (!state.isQueued) {
      return refusal(
        'NOT_QUEUED',
        `job ${id} is ${state.status}${state.hasLiveLease ? `, held by ${state.holder}` : ''}`,
      )
    }
    if (!state.isDue) return refusal('NOT_DUE', `job ${id} is not due before ${moment(state.dueAt)}`)
    if (!state.hasAttemptsLeft) return refusal('NO_ATTEMPTS_LEFT', `job ${id} is queued but has used up its attempts`)
    metrics?.count('worker_atomic_acquire_fail_total', {})
    return refusal('NOT_QUEUED', `job ${id} is being taken by somebody else right now`)
  }
}

/** A database that is away is an answer a worker must be able to act on; any other error is thrown. */
async function unlessAway<T>(
  act: () => Promise<T>,
  onAway?: () => void,
): Promise<T | { ok: false; error: string; code: 'UNAVAILABLE' }> {
  try {
    return await act()
  } catch (error) {
    if (!isTransient(error)) throw error
    onAway?.()
    return refusal('UNAVAILABLE', describeError(error))
  }
}

/** Without a holder and an attempt there is nothing to fence a write with. */
function requireFence({ profile: { table, columns } }: JobTable): void {
  if (columns.holder === null || columns.attempts === null || columns.leaseExpiresAt === null) {
    throw new TableRejected(table, [
      'leases need columns for holder, attempts and lease end: name them in its profile and run bun run migrate',
    ])
  }
}

/** One id that does not fit the column's type spoils the statement for all: then they are claimed one by one. */
async function passingOverMalformed(
  ids: readonly string[],
  claim: (among: readonly string[]) => Promise<ClaimedRow[]>,
): Promise<ClaimedRow[]> {
  try {
    return await claim(ids)
  } catch (error) {
    if (!isMalformedId(error)) throw error
    if (ids.length === 1) return []
  }
  const rows: ClaimedRow[] = []
  for (const id of ids) rows.push(...(await passingOverMalformed([id], claim)))
  return rows
}

function noneIfMalformed(error: unknown): null {
  if (isMalformedId(error)) return null
  throw error
}

function fenceKey({ id, attempt, holder }: Fence): string {
  return JSON.stringify([id, attempt, holder])
}

/** PostgreSQL's infinity is no date to JavaScript. */
function moment(date: Date | null): string {
  return date && !Number.isNaN(date.getTime()) ? date.toISOString() : 'the end of time'
}

function idOf(job: string | Lease): string {
  return typeof job === 'string' ? job : job.id
}

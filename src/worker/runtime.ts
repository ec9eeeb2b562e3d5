/** The worker: claims as many jobs as it has free slots, runs them, and stops without losing any. */
import { availableParallelism } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'

import { countDue, releaseJob } from '../db/attempt.ts'
import { openDatabase } from '../db/client.ts'
import { describeError } from '../db/errors.ts'
import { tableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import { snakeCaseProfile } from '../db/profiles.ts'
import { onceMore } from '../db/retry.ts'
import { stagesFor } from '../db/rules.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { publishJobs } from '../dispatch/publish.ts'
import { DEFAULT_BACKOFF_LADDER_MS } from '../job/backoff.ts'
import { DEFAULT_SLA_FACTORS, stagePolicy, type StagePolicy } from '../job/stage.ts'
import type { Storage } from '../storage/storage.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { type AttemptTools, runAttempt } from './attempt.ts'
import { accountFor } from './deliveries.ts'
import type { Handlers } from './handler.ts'
import { startHeartbeats } from './heartbeat.ts'
import { newHolder } from './holder.ts'
import { type ClaimedJob, createLeases } from './lease.ts'
import { isUnderPressure, loadPerCore } from './pressure.ts'

export interface WorkerOptions {
  /** The worker opens its own clients: one for the work, one for the heartbeat thread. */
  databaseUrl: string
  table?: string | Profile
  tables?: readonly (string | Profile)[]
  handlers: Handlers
  storage: Storage
  holder?: string
  maxConcurrency?: number
  stageConcurrency?: Record<string, number>
  heartbeatSec?: number
  wedgeTimeoutSec?: number
  onLeaseUnknown?: 'continue' | 'abort'
  stages?: StagePolicy
  stallTimeoutSec?: number
  stageStallSec?: Record<string, number>
  maxAttempts?: number
  backoffLadderMs?: readonly number[]
  pollIntervalSec?: number
  highWatermark?: number
  loadThreshold?: number
  pauseIntervalSec?: number
  shutdownTimeoutSec?: number
  scratch?: { dir: string; keepOnSuccess: boolean }
  queryTimeoutSec?: number
  prepare?: boolean
  logLevel?: string
  log?: Log
  metrics?: Metrics
  /** Feeds the worker with jobs; without one it polls the table. It is closed by whoever made it. */
  dispatch?: Dispatcher
  /** For tests: the machine's load per core. */
  loadPerCore?: () => number
}

export interface Worker {
  holder: string
  start(): void
  /** Stops claiming, keeps beating, waits for what runs, gives the rest back. */
  stop(): Promise<void>
  inFlight(): number
  /** Why no jobs can be taken now; empty when they can. */
  obstacles(): string[]
  /** Resolves when the worker cannot go on: its heartbeat thread has died. */
  died: Promise<Error>
}

/** Which jobs to ask for. */
interface Wish {
  limit?: number
  stages?: string[]
  exceptStages?: string[]
  /** Only these, because they were delivered. */
  ids?: readonly string[]
}

export function createWorker(options: WorkerOptions): Worker {
  const { metrics, dispatch, log = silentLog } = options
  const holder = options.holder ?? newHolder()
  const heartbeatSec = options.heartbeatSec ?? 10
  const maxConcurrency = options.maxConcurrency ?? availableParallelism()
  const stageLimits = options.stageConcurrency ?? {}
  const pollMs = (options.pollIntervalSec ?? 1) * 1000
  const stages =
    options.stages ??
    stagePolicy({ heartbeatSec, factors: DEFAULT_SLA_FACTORS, defaultLeaseSec: 300, maxRuntimeSec: 21_600 })
  const maxAttempts = options.maxAttempts ?? 3
  const profiles = (options.tables ?? [options.table ?? 'jobs']).map((each) =>
    typeof each === 'string' ? snakeCaseProfile(each) : each,
  )
  const queryTimeoutSec = options.queryTimeoutSec ?? 10
  const db = openDatabase({
    url: options.databaseUrl,
    poolMax: Math.min(maxConcurrency + 1, 10),
    queryTimeoutSec,
    prepare: options.prepare ?? false,
    applicationName: 'leasehold worker',
  })
  const died = Promise.withResolvers<Error>()
  const stopping = new AbortController()
  const heartbeats = startHeartbeats(
    {
      url: options.databaseUrl,
      profiles,
      heartbeatSec,
      wedgeTimeoutSec: options.wedgeTimeoutSec ?? 120,
      logLevel: options.logLevel ?? 'silent',
    },
    {
      metrics,
      // Nothing keeps leases alive any more: take no more of them.
      onDeath: (error) => {
        stopping.abort()
        died.resolve(error)
      },
    },
  )
  const shutdown = new AbortController()
  const wake = createBell()
  const running = new Map<Promise<void>, string>()
  const obstacles = new Map<string, string>()
  let loop: Promise<void> | null = null
  let turn = 0
  let hasPaused = false

  const tables = profiles.map((profile) => ({
    profile,
    tools: {
      db,
      profile,
      handle: tableHandle(db, profile),
      leases: createLeases({
        db,
        table: profile,
        stages,
        maxAttempts,
        backoffLadderMs: options.backoffLadderMs ?? DEFAULT_BACKOFF_LADDER_MS,
        log,
        tellsLosses: false,
        ...(metrics ? { metrics } : {}),
        ...(dispatch ? { dispatch } : {}),
      }),
      offer: (id: string) => publishJobs(dispatch, profile.table, [{ id, dueAt: null }], { log, metrics }),
      heartbeats,
      storage: options.storage,
      stages: stagesFor(profile, stages),
      maxAttempts,
      scratch: options.scratch ?? { dir: '.scratch', keepOnSuccess: false },
      stallSec: (stage: string | null) => options.stageStallSec?.[stage ?? ''] ?? options.stallTimeoutSec ?? 0,
      onLeaseUnknown: options.onLeaseUnknown ?? 'continue',
      log,
      metrics,
      shutdown: shutdown.signal,
    } satisfies AttemptTools,
  }))

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      const taken = await takeFromAll()
      if (taken > 0) continue
      // A freed slot rings; otherwise the poll interval, spread so that a fleet does not ask in step.
      await wake.wait(pollMs * (0.75 + Math.random() / 2), stopping.signal)
    }
  }

  async function takeFromAll(): Promise<number> {
    let taken = 0
    // Every round begins with another table, so that a long queue in one does not starve the others.
    turn = (turn + 1) % tables.length
    for (const table of [...tables.slice(turn), ...tables.slice(0, turn)]) {
      if (stopping.signal.aborted || running.size >= maxConcurrency) break
      try {
        if (await pauseUnderPressure(table)) return taken
        taken += dispatch ? await takeDelivered(table, dispatch) : (await takeFrom(table)).length
        obstacles.delete(table.profile.table)
      } catch (error) {
        const found = `${table.profile.table}: ${describeError(error)}`
        if (found !== obstacles.get(table.profile.table)) {
          log.error({ table: table.profile.table, obstacle: found }, 'no jobs can be taken')
        }
        obstacles.set(table.profile.table, found)
      }
    }
    return taken
  }

  /**
   * First the stages with a limit of their own, each up to its limit, then everything else. A stage that has no handler
   * here is left for a worker that has one.
   */
  async function takeFrom(table: (typeof tables)[number], ids?: readonly string[]): Promise<string[]> {
    const takesAll = options.handlers.default !== undefined
    const known = Object.keys(options.handlers).filter((stage) => stage !== 'default')
    const limited = Object.keys(stageLimits).filter((stage) => takesAll || known.includes(stage))
    const wishes: Wish[] = [
      ...limited.map((stage) => ({ stages: [stage], limit: (stageLimits[stage] ?? 0) - countRunning(stage) })),
      takesAll ? { exceptStages: limited } : { stages: known.filter((stage) => !limited.includes(stage)) },
    ]
    const taken: string[] = []
    // In another order every time, for the same reason.
    for (const { limit = maxConcurrency, ...which } of turn % 2 === 0 ? wishes : wishes.toReversed()) {
      const free = Math.min(limit, maxConcurrency - running.size)
      if (free > 0) taken.push(...(await claim(table, { ...which, limit: free, ...(ids ? { ids } : {}) })))
    }
    return taken
  }

  /** The same wishes, among the jobs that were delivered. What could not be taken is looked at, counted, and offered again if it still waits. */
  async function takeDelivered(table: (typeof tables)[number], from: Dispatcher): Promise<number> {
    const { tools, profile } = table
    const ids = await from.fetch(profile.table, maxConcurrency - running.size)
    if (ids.length === 0) return 0
    try {
      const taken = new Set(await takeFrom(table, ids))
      const left = ids.filter((id) => !taken.has(id))
      await accountFor(left, {
        db,
        handle: tools.handle,
        dispatch: from,
        table: profile.table,
        maxAttempts,
        log,
        metrics,
      })
    } catch (error) {
      // Their messages are gone already; a job that was taken after all turns the second one into a counted skip.
      await publishJobs(
        from,
        profile.table,
        ids.map((id) => ({ id, dueAt: null })),
        { log, metrics },
      )
      throw error
    }
    return ids.length
  }

  function countRunning(stage: string): number {
    return [...running.values()].filter((each) => each === stage).length
  }

  async function claim({ tools }: (typeof tables)[number], wish: Wish & { limit: number }): Promise<string[]> {
    const claimed = await tools.leases.claimNext({ workerId: holder, ...wish })
    if (!claimed.ok) throw new Error(claimed.error)
    for (const job of claimed.value) {
      if (stopping.signal.aborted) await giveBackUnstarted(job, tools)
      else begin(job, tools)
    }
    return claimed.value.map(({ lease }) => lease.id)
  }

  function begin(job: ClaimedJob, tools: AttemptTools): void {
    const { lease } = job
    const stage = lease.stage ?? ''
    const handler =
      (Object.hasOwn(options.handlers, stage) ? options.handlers[stage] : options.handlers.default) ?? null
    const attempt = runAttempt(job, handler, tools).catch((error: unknown) => {
      log.error(
        { table: lease.table, jobId: lease.id, error: describeError(error) },
        'attempt could not be ended; its lease will run out',
      )
    })
    running.set(attempt, stage)
    showInFlight()
    void attempt.finally(() => {
      running.delete(attempt)
      showInFlight()
      wake.ring()
    })
  }

  /** A claim that was under way when the worker was told to stop: nothing has been done yet, so nothing is lost. */
  async function giveBackUnstarted({ lease }: ClaimedJob, tools: AttemptTools): Promise<void> {
    try {
      const status = await tools.handle.use((table) => onceMore(() => releaseJob(db, table, lease, { maxAttempts })))
      if (status === 'queued') await tools.offer(lease.id)
    } catch (error) {
      log.error({ jobId: lease.id, error: describeError(error) }, 'job could not be given back; its lease will run out')
    }
  }

  async function pauseUnderPressure({ tools, profile }: (typeof tables)[number]): Promise<boolean> {
    const load = (options.loadPerCore ?? loadPerCore)()
    const limits = { highWatermark: options.highWatermark ?? 100, loadThreshold: options.loadThreshold ?? 0.9 }
    // The load may be somebody else's and never go away: a worker with nothing to do takes some work between two pauses.
    if (running.size === 0 && hasPaused) {
      hasPaused = false
      return false
    }
    // The queue is only counted on a busy machine.
    if (load <= limits.loadThreshold) return false
    const dueJobs = await tools.handle.use((table) =>
      countDue(db, table, { upTo: limits.highWatermark + 1, maxAttempts }),
    )
    if (!isUnderPressure({ dueJobs, loadPerCore: load }, limits)) return false
    hasPaused = true
    metrics?.count('worker_pauses_total', {})
    const pauseSec = options.pauseIntervalSec ?? 5
    log.info(
      { table: profile.table, dueJobs, loadPerCore: load, pauseSec },
      'claiming pauses: much is waiting and the machine is busy',
    )
    await sleep(pauseSec * 1000, undefined, { signal: stopping.signal }).catch(() => undefined)
    return true
  }

  function showInFlight(): void {
    metrics?.set('worker_inflight_jobs', {}, running.size)
  }

  return {
    holder,
    died: died.promise,
    inFlight: () => running.size,
    obstacles: () => [...obstacles.values()],
    start() {
      showInFlight()
      loop ??= run()
    },
    async stop() {
      stopping.abort()
      wake.ring()
      const timeout = sleep((options.shutdownTimeoutSec ?? 25) * 1000, undefined, { ref: false })
      await loop
      await Promise.race([Promise.all(running.keys()), timeout])
      if (running.size > 0) log.warn({ jobs: running.size }, 'jobs outlast the shutdown; giving them back')
      shutdown.abort()
      await Promise.all(running.keys())
      await heartbeats.stop()
      await db.close()
    },
  }
}

/** Something to wait for that can be rung from elsewhere. */
function createBell(): { ring(): void; wait(ms: number, signal: AbortSignal): Promise<void> } {
  let rung = new AbortController()
  return {
    ring: () => rung.abort(),
    async wait(ms, signal) {
      await sleep(ms, undefined, { signal: AbortSignal.any([signal, rung.signal]) }).catch(() => undefined)
      rung = new AbortController()
    },
  }
}

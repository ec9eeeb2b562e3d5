/** The reaper as a service: wakes when a lease ends, looks at every table, moves what ran out, and carries on after errors. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { describeError, isConnectionError, isTransient } from '../db/errors.ts'
import type { ExpiryRules } from '../db/expiry.ts'
import { type Look, lookAt, readClock } from '../db/look.ts'
import { type TableHandle, tableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import { snakeCaseProfile } from '../db/profiles.ts'
import { EVERY_DUE_ROW, previewExpired, type ReapedRow, type ReapSettings } from '../db/reap.ts'
import { type GeneralRules, graceSecFor, rulesFor } from '../db/rules.ts'
import { type JobTable, TableRejected } from '../db/table.ts'
import { DEFAULT_BACKOFF_LADDER_MS } from '../job/backoff.ts'
import { isMassExpiry, nextWakeSec } from '../job/recovery.ts'
import { DEFAULT_SLA_FACTORS, shortestLeaseSec, stagePolicy, type StagePolicy } from '../job/stage.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Health } from '../telemetry/server.ts'
import { showLook } from './gauges.ts'
import { createIsolation, type Isolation } from './isolation.ts'
import { createOutageWatch } from './outage.ts'
import { type PassContext, type ReaperResult, reapTable } from './reap.ts'
import { type Lookout, rescueUndispatched } from './undispatched.ts'

export interface ReaperOptions {
  db: Database
  tables?: readonly (string | Profile)[]
  heartbeatSec?: number
  stages?: StagePolicy
  leaseTimeoutSec?: number
  nullLeaseSec?: number
  intervalSec?: number
  batchSize?: number
  maxAttempts?: number
  queuedOrphanSec?: number
  /** Publishes what is requeued; without one, workers poll. */
  dispatch?: Dispatcher
  backoffLadderMs?: readonly number[]
  metrics?: Metrics
  log?: Log
  /** Told after every pass, good or not: who watches the reaper can show it, or feed a watchdog. */
  onPass?: (pass: PassReport) => void
}

export interface PassReport {
  table: string
  at: Date
  tookMs: number
  outcome: Outcome | 'error'
  requeued: number
  failed: number
  /** What stood in the way, in one line. */
  obstacle: string | null
}

export interface Reaper {
  start(): void
  /** Ends the pass that is under way after its current batch, and the loop. */
  stop(): Promise<void>
  /** One pass over one table, now and without any grace. */
  reap(table: string): Promise<ReaperResult>
  /** What a pass would do now, and by which rule. Nothing is written. */
  preview(table: string, limit?: number): Promise<ReapedRow[]>
  health: Health
  /** Seconds since the last good pass of each table, for the gauge. */
  showAges(): void
}

type Outcome = 'ok' | 'yielded'

interface Pass {
  /** How many seconds the table can be left alone. */
  waitSec: number
  outcome: Outcome
  moved: ReaperResult
}

interface Watched {
  name: string
  profile: Profile
  rules: Omit<ExpiryRules, 'outage'>
  lookout: Lookout
  handle: TableHandle
  isolation: Isolation
  batch: { size: number; limit: number }
  /** Monotonic time of the last pass that went through. */
  lastGoodPass: number | null
  /** Monotonic time of the last batch: a pass over a large backlog is alive. */
  lastSign: number
  /** What stands in the way, in one line; null when the table is fine. */
  obstacle: string | null
  /** Times in a row that another session held the scan lock while work was waiting. */
  yields: number
}

/** After this many yields in a row the lock is taken for squatted; rows are safe without it. */
const MOST_YIELDS = 5
/** A failed pass is tried again this soon, then ever later, up to the interval. */
const FIRST_RETRY_SEC = 0.25
const LAST_RETRY_SEC = 5

export function createReaper(options: ReaperOptions): Reaper {
  const { db, metrics, log = silentLog } = options
  const heartbeatSec = options.heartbeatSec ?? 10
  const intervalSec = options.intervalSec ?? 60
  const stages =
    options.stages ??
    stagePolicy({ heartbeatSec, factors: DEFAULT_SLA_FACTORS, defaultLeaseSec: 300, maxRuntimeSec: 21_600 })
  const general: GeneralRules = {
    stages,
    leaseTimeoutSec: options.leaseTimeoutSec ?? 3 * heartbeatSec,
    nullLeaseSec: options.nullLeaseSec ?? 3600,
  }
  const batchSize = options.batchSize ?? 1000
  const watch = createOutageWatch(heartbeatSec)
  const stopping = new AbortController()
  const tables = (options.tables ?? ['jobs', 'asr_jobs']).map((each): Watched => {
    const profile = typeof each === 'string' ? snakeCaseProfile(each) : each
    const orphanSec = profile.policy.queuedOrphanSec ?? options.queuedOrphanSec ?? 300
    return {
      name: profile.table,
      profile,
      rules: rulesFor(profile, general),
      lookout: { orphanSec, offered: createIsolation(orphanSec * 1000), hasReported: false },
      handle: tableHandle(db, profile),
      isolation: createIsolation(intervalSec * 1000),
      batch: { size: batchSize, limit: batchSize },
      lastGoodPass: null,
      lastSign: 0,
      obstacle: 'no pass yet',
      yields: 0,
    }
  })
  const startedAt = performance.now()
  let running: Promise<void> | null = null
  let failures = 0

  /** A direct pass asks for no grace; the loop gives this table's workers the time they need to check in. */
  function settings({ rules, profile }: Watched, withGrace: boolean): ReapSettings {
    const outage = withGrace ? { ...watch.grace(), graceSec: graceSecFor(profile, heartbeatSec) } : null
    return {
      rules: { ...rules, outage },
      maxAttempts: options.maxAttempts ?? 3,
      ladderMs: options.backoffLadderMs ?? DEFAULT_BACKOFF_LADDER_MS,
    }
  }

  function context(watched: Watched, withGrace: boolean): PassContext {
    const { batch, isolation } = watched
    return { db, settings: settings(watched, withGrace), batch, isolation, log, metrics, dispatch: options.dispatch }
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      const waits: number[] = []
      for (const watched of tables) waits.push(await passOver(watched))
      const waitSec = Math.min(...waits, intervalSec)
      watch.sleeping(waitSec)
      log.debug({ waitSec }, 'sleeping')
      await sleep(waitSec * 1000, undefined, { signal: stopping.signal }).catch(() => undefined)
    }
  }

  /** Answers how many seconds this table can be left alone. */
  async function passOver(watched: Watched): Promise<number> {
    const startedAt = performance.now()
    try {
      const { waitSec, outcome, moved } = await watched.handle.use((table) => lookAndReap(watched, table))
      passed(watched, outcome, performance.now() - startedAt)
      report(watched, performance.now() - startedAt, outcome, moved)
      return waitSec
    } catch (error) {
      const isAway = await contactIsGone(error, (performance.now() - startedAt) / 1000)
      const waitSec = failed(watched, error, isAway)
      report(watched, performance.now() - startedAt, 'error')
      return waitSec
    }
  }

  function report(
    { name: table, obstacle }: Watched,
    tookMs: number,
    outcome: PassReport['outcome'],
    moved?: ReaperResult,
  ): void {
    const requeued = moved?.requeuedIds.length ?? 0
    const failed = moved?.failedIds.length ?? 0
    try {
      options.onPass?.({ table, at: new Date(), tookMs, outcome, requeued, failed, obstacle })
    } catch (error) {
      // Whoever listens must not end the loop for everybody.
      log.error({ table, error: describeError(error) }, 'onPass failed')
    }
  }

  /** The usual pass finds nothing and costs one query. */
  async function lookAndReap(watched: Watched, table: JobTable): Promise<Pass> {
    let look = await take(watched, table)
    let outcome: Outcome = 'ok'
    let moved: ReaperResult = { requeuedIds: [], failedIds: [] }
    if (look.isLeader) watched.yields = 0
    if (look.expired + look.ungoverned > 0) {
      if (isMassExpiry(look.expired, look.held)) shoutMassExpiry(table, look)
      if (!look.isLeader) watched.yields += 1
      const isSquatted = watched.yields >= MOST_YIELDS
      if (isSquatted)
        log.warn({ table: table.name }, 'the scan lock is held by somebody who does not scan; going on without it')
      if (look.isLeader || isSquatted) {
        moved = await workOff(watched, table, { yieldToOthers: look.isLeader })
        look = await take(watched, table)
      } else {
        outcome = 'yielded'
      }
    }
    if (look.isLeader) {
      const hasMoved = await rescueUndispatched(table, look.undispatched, watched.lookout, context(watched, true))
      if (hasMoved) look = await take(watched, table)
    }
    const setAside = watched.isolation.ids().length
    if (metrics) showLook(metrics, table.name, look, setAside)
    const hasLeftovers = look.expired + look.ungoverned > setAside
    const { nextDeadlineSec: nearestDeadlineSec } = look
    const shortest = shortestLeaseSec(watched.rules.stages)
    const waitSec = nextWakeSec({
      nearestDeadlineSec,
      shortestLeaseSec: shortest,
      intervalSec,
      heartbeatSec,
      hasLeftovers,
    })
    return { waitSec, outcome, moved }
  }

  async function workOff(
    watched: Watched,
    table: JobTable,
    options: { yieldToOthers: boolean },
  ): Promise<ReaperResult> {
    const startedAt = performance.now()
    const onBatch = (): void => {
      watched.lastSign = performance.now()
    }
    const moved = await reapTable(table, { ...context(watched, true), signal: stopping.signal, onBatch }, options)
    // A long pass is work, not silence.
    watch.sleeping((performance.now() - startedAt) / 1000)
    return moved
  }

  /** A look that ends an outage was made without the grace: it is made again. */
  async function take(watched: Watched, table: JobTable): Promise<Look> {
    const { orphanSec } = watched.lookout
    const look = await lookAt(db, table, { ...settings(watched, true), orphanSec, isReaper: true })
    if (look.isReadOnly)
      throw Object.assign(new Error('the database is read-only; nothing can be moved'), { code: '25006' })
    if (!watch.answered(look.now)) return look
    log.warn(
      { table: table.name, graceSec: graceSecFor(watched.profile, heartbeatSec) },
      'the database was away: jobs that have not checked in since get a grace',
    )
    return lookAt(db, table, { ...settings(watched, true), orphanSec, isReaper: true })
  }

  /** One locked table or one killed backend is no outage: the database is asked before it is said to be away. */
  async function contactIsGone(error: unknown, spentSec: number): Promise<boolean> {
    if (!isConnectionError(error)) return false
    try {
      const now = await readClock(db)
      watch.sleeping(spentSec)
      watch.answered(now)
      return false
    } catch {
      watch.lost()
      return true
    }
  }

  function shoutMassExpiry(table: JobTable, { expired, held }: Look): void {
    metrics?.count('reaper_mass_expiries_total', { table: table.name })
    log.error(
      { table: table.name, expired, held },
      'most leases ran out at once: look at the database and the network before the workers',
    )
  }

  function passed(watched: Watched, outcome: Outcome, tookMs: number): void {
    failures = 0
    const isNews = watched.obstacle !== null
    watched.lastGoodPass = performance.now()
    watched.obstacle = null
    metrics?.set('database_up', {}, 1)
    metrics?.set('reaper_table_accepted', { table: watched.name }, 1)
    metrics?.count('reaper_passes_total', { table: watched.name, outcome })
    metrics?.observe('reaper_scan_duration_ms', { table: watched.name }, tookMs)
    log[isNews ? 'info' : 'debug']({ table: watched.name, scan_duration_ms: Math.round(tookMs) }, 'pass completed')
  }

  /** Told once per obstacle, so that a long outage is one line and not a thousand. */
  function failed(watched: Watched, error: unknown, isAway: boolean): number {
    failures += 1
    const isRefused = error instanceof TableRejected
    metrics?.set('database_up', {}, isAway ? 0 : 1)
    if (isRefused) metrics?.set('reaper_table_accepted', { table: watched.name }, 0)
    metrics?.count('reaper_passes_total', { table: watched.name, outcome: 'error' })
    const what = isAway ? 'waiting for the database' : isRefused ? 'table refused' : 'pass failed'
    const obstacle = isAway
      ? `waiting for the database at ${db.target}: ${describeError(error)}`
      : `${watched.name}: ${describeError(error)}`
    if (obstacle !== watched.obstacle) {
      log.error({ table: watched.name, obstacle, ...(isRefused ? { problems: error.problems } : {}) }, what)
    }
    watched.obstacle = obstacle
    const soon = Math.min(FIRST_RETRY_SEC * 2 ** Math.min(failures, 10), LAST_RETRY_SEC)
    return Math.min(isTransient(error) ? soon : LAST_RETRY_SEC, intervalSec)
  }

  function find(name: string): Watched {
    const watched = tables.find((each) => each.name === name)
    if (!watched)
      throw new Error(`this reaper does not watch ${name}, only ${tables.map((each) => each.name).join(', ')}`)
    return watched
  }

  return {
    start() {
      running ??= run()
    },
    async stop() {
      stopping.abort()
      await running
    },
    async reap(name) {
      const watched = find(name)
      return watched.handle.use((table) => reapTable(table, context(watched, false), { yieldToOthers: false }))
    },
    async preview(name, limit = 1000) {
      const watched = find(name)
      return watched.handle.use((table) =>
        previewExpired(db, table, settings(watched, false), { ...EVERY_DUE_ROW, limit }),
      )
    },
    health: {
      isAlive() {
        const newest = Math.max(startedAt, ...tables.map((each) => Math.max(each.lastGoodPass ?? 0, each.lastSign)))
        return performance.now() - newest <= 3 * intervalSec * 1000
      },
      obstacles: () => [...new Set(tables.flatMap((each) => each.obstacle ?? []))],
    },
    showAges() {
      for (const { name: table, lastGoodPass } of tables) {
        metrics?.set(
          'reaper_last_success_age_seconds',
          { table },
          (performance.now() - (lastGoodPass ?? startedAt)) / 1000,
        )
      }
    },
  }
}

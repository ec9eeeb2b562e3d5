/** The reaper as a service: wakes when a lease ends, looks at every table, moves what ran out, and carries on after errors. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { describeError, isConnectionError, isTransient } from '../db/errors.ts'
import type { ExpiryRules, OutageGrace } from '../db/expiry.ts'
import { type Look, lookAt } from '../db/look.ts'
import { type TableHandle, tableHandle } from '../db/open-once.ts'
import { type Profile, snakeCaseProfile } from '../db/profile.ts'
import { EVERY_DUE_ROW, previewExpired, type ReapedRow, type ReapSettings } from '../db/reap.ts'
import { type JobTable, TableRejected } from '../db/table.ts'
import { DEFAULT_BACKOFF_LADDER_MS } from '../job/backoff.ts'
import { isMassExpiry, nextWakeSec } from '../job/recovery.ts'
import { DEFAULT_SLA_FACTORS, shortestLeaseSec, stagePolicy, type StagePolicy } from '../job/stage.ts'
import { type Log, silentLog } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Health } from '../telemetry/server.ts'
import { showLook } from './gauges.ts'
import { createIsolation, type Isolation } from './isolation.ts'
import { createOutageWatch } from './outage.ts'
import { type PassContext, type ReaperResult, reapTable } from './reap.ts'

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
  backoffLadderMs?: readonly number[]
  metrics?: Metrics
  log?: Log
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

interface Watched {
  name: string
  handle: TableHandle
  isolation: Isolation
  /** Monotonic time of the last pass that went through. */
  lastGoodPass: number | null
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
  const rules: Omit<ExpiryRules, 'outage'> = {
    stages,
    leaseTimeoutSec: options.leaseTimeoutSec ?? 3 * heartbeatSec,
    nullLeaseSec: options.nullLeaseSec ?? 3600,
  }
  const watch = createOutageWatch(heartbeatSec)
  const stopping = new AbortController()
  const tables = (options.tables ?? ['jobs', 'asr_jobs']).map((each): Watched => {
    const profile = typeof each === 'string' ? snakeCaseProfile(each) : each
    return {
      name: profile.table,
      handle: tableHandle(db, profile),
      isolation: createIsolation(intervalSec * 1000),
      lastGoodPass: null,
      obstacle: 'no pass yet',
      yields: 0,
    }
  })
  const startedAt = performance.now()
  let running: Promise<void> | null = null
  let failures = 0

  function settings(outage: OutageGrace | null): ReapSettings {
    return {
      rules: { ...rules, outage },
      maxAttempts: options.maxAttempts ?? 3,
      ladderMs: options.backoffLadderMs ?? DEFAULT_BACKOFF_LADDER_MS,
    }
  }

  function context(watched: Watched, outage: OutageGrace | null): PassContext {
    const batchSize = options.batchSize ?? 1000
    return {
      db,
      settings: settings(outage),
      batchSize,
      isolation: watched.isolation,
      log,
      metrics,
      signal: stopping.signal,
    }
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
      const waitSec = await watched.handle.use((table) => lookAndReap(watched, table))
      passed(watched, performance.now() - startedAt)
      return waitSec
    } catch (error) {
      return failed(watched, error)
    }
  }

  /** The usual pass finds nothing and costs one query. */
  async function lookAndReap(watched: Watched, table: JobTable): Promise<number> {
    let look = await take(table)
    if (look.isLeader) watched.yields = 0
    if (look.expired + look.ungoverned > 0) {
      if (isMassExpiry(look.expired, look.held)) shoutMassExpiry(table, look)
      if (!look.isLeader) watched.yields += 1
      const yieldToOthers = watched.yields < MOST_YIELDS
      if (look.isLeader || !yieldToOthers) {
        if (!yieldToOthers)
          log.warn({ table: table.name }, 'the scan lock is held by somebody who does not scan; going on without it')
        await reapTable(table, context(watched, watch.grace()), { yieldToOthers: look.isLeader && yieldToOthers })
        look = await take(table)
      } else {
        metrics?.count('reaper_passes_total', { table: table.name, outcome: 'yielded' })
      }
    }
    if (metrics) showLook(metrics, table.name, look, watched.isolation.ids().length)
    const { nextDeadlineSec: nearestDeadlineSec } = look
    const hasLeftovers = look.expired + look.ungoverned > watched.isolation.ids().length
    return nextWakeSec({ nearestDeadlineSec, shortestLeaseSec: shortestLeaseSec(stages), intervalSec, hasLeftovers })
  }

  /** A look that ends an outage was made without the grace: it is made again. */
  async function take(table: JobTable): Promise<Look> {
    const look = await lookAt(db, table, settings(watch.grace()).rules)
    if (!watch.answered(look.now)) return look
    log.warn(
      { table: table.name, graceSec: watch.grace().graceSec },
      'the database was away: jobs that have not checked in since get a grace',
    )
    return lookAt(db, table, settings(watch.grace()).rules)
  }

  function shoutMassExpiry(table: JobTable, { expired, held }: Look): void {
    metrics?.count('reaper_mass_expiries_total', { table: table.name })
    log.error(
      { table: table.name, expired, held },
      'most leases ran out at once: look at the database and the network before the workers',
    )
  }

  function passed(watched: Watched, tookMs: number): void {
    failures = 0
    const isFirst = watched.lastGoodPass === null || watched.obstacle !== null
    watched.lastGoodPass = performance.now()
    watched.obstacle = null
    metrics?.set('database_up', {}, 1)
    metrics?.set('reaper_table_accepted', { table: watched.name }, 1)
    metrics?.count('reaper_passes_total', { table: watched.name, outcome: 'ok' })
    metrics?.observe('reaper_scan_duration_ms', { table: watched.name }, tookMs)
    log[isFirst ? 'info' : 'debug']({ table: watched.name, scan_duration_ms: Math.round(tookMs) }, 'pass completed')
  }

  /** Told once per obstacle, so that a long outage is one line and not a thousand. */
  function failed(watched: Watched, error: unknown): number {
    failures += 1
    if (isConnectionError(error)) watch.lost()
    if (isConnectionError(error)) metrics?.set('database_up', {}, 0)
    if (error instanceof TableRejected) metrics?.set('reaper_table_accepted', { table: watched.name }, 0)
    metrics?.count('reaper_passes_total', { table: watched.name, outcome: 'error' })
    const obstacle = isConnectionError(error)
      ? `waiting for the database at ${db.target}: ${describeError(error)}`
      : `${watched.name}: ${describeError(error)}`
    if (obstacle !== watched.obstacle) {
      const facts = {
        table: watched.name,
        obstacle,
        ...(error instanceof TableRejected ? { problems: error.problems } : {}),
      }
      log.error(
        facts,
        error instanceof TableRejected
          ? 'table refused'
          : isConnectionError(error)
            ? 'waiting for the database'
            : 'pass failed',
      )
    }
    watched.obstacle = obstacle
    const retrySec = isTransient(error)
      ? Math.min(FIRST_RETRY_SEC * 2 ** Math.min(failures, 10), LAST_RETRY_SEC)
      : LAST_RETRY_SEC
    return Math.min(retrySec, intervalSec)
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
      return watched.handle.use((table) => reapTable(table, context(watched, null), { yieldToOthers: false }))
    },
    async preview(name, limit = 1000) {
      return find(name).handle.use((table) => previewExpired(db, table, settings(null), { ...EVERY_DUE_ROW, limit }))
    },
    health: {
      isAlive() {
        const newest = Math.max(startedAt, ...tables.map((each) => each.lastGoodPass ?? 0))
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

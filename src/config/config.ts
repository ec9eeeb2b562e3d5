/** The environment as one typed object: read once, at start, and either whole and sensible or refused with reasons. */
import type { z } from 'zod'

import { backoffLadder, DEFAULT_BACKOFF_LADDER_MS } from '../job/backoff.ts'
import { shortestLeaseSec, stagePolicy, type StagePolicy } from '../job/stage.ts'
import {
  type Setting,
  SETTINGS,
  STAGE_CONCURRENCY,
  STAGE_FACTOR,
  STAGE_STALL,
  stageConcurrencyKind,
  stageFactorKind,
  stageStallKind,
} from './settings.ts'

type Key = keyof typeof SETTINGS
type Values = { [K in Key]: z.output<(typeof SETTINGS)[K]['kind']> | null }
export type Environment = Record<string, string | undefined>

export interface Config {
  database: { url: string | null; poolMax: number; prepare: boolean; queryTimeoutSec: number; dataDir: string }
  heartbeatSec: number
  leaseTimeoutSec: number
  maxAttempts: number
  backoffLadderMs: readonly number[]
  stages: StagePolicy
  /** Where the tables are described; null: they are in our own spelling. */
  tablesFile: string | null
  queueProvider: 'poll' | 'pgboss'
  pgbossSchema: string
  /** `tables` is null where the file of tables decides. */
  reaper: {
    tables: string[] | null
    intervalSec: number
    batchSize: number
    nullLeaseSec: number
    queuedOrphanSec: number
  }
  worker: WorkerConfig
  scratch: { dir: string; keepOnSuccess: boolean; retentionHours: number }
  storage: { dir: string; s3: S3Config | null }
  http: { host: string; port: number }
  /** The dashboard: its own port when it runs alone, the secret that allows actions, the names it answers to. */
  dashboard: { port: number; token: string | null; hosts: readonly string[] }
  logLevel: string
  /** Doubtful, but not wrong; to be logged once at start. */
  warnings: string[]
}

export interface WorkerConfig {
  tables: string[] | null
  handlers: string | null
  /** Null: as many as there are cores. */
  maxConcurrency: number | null
  stageConcurrency: Record<string, number>
  pollIntervalSec: number
  highWatermark: number
  loadThreshold: number
  pauseIntervalSec: number
  wedgeTimeoutSec: number
  onLeaseUnknown: 'continue' | 'abort'
  stallTimeoutSec: number
  stageStallSec: Record<string, number>
  shutdownTimeoutSec: number
  httpPort: number
}

export interface S3Config {
  bucket: string
  endpoint: string
  region: string
  accessKeyId: string
  secretAccessKey: string
}

/** Thrown when the environment makes no sense. The message lists every fault at once. */
export class ConfigError extends Error {
  readonly faults: string[]

  constructor(faults: string[]) {
    super(`The configuration cannot be used:\n${faults.map((fault) => `  ${fault}`).join('\n')}`)
    this.name = 'ConfigError'
    this.faults = faults
  }
}

export function loadConfig(env: Environment = process.env): Config {
  const faults: string[] = []
  const values = readValues(env, faults)
  const factors = readFactors(env, values, faults)
  const stageConcurrency = readByStage(env, STAGE_CONCURRENCY, stageConcurrencyKind, faults)
  const stageStallSec = readByStage(env, STAGE_STALL, stageStallKind, faults)
  const s3 = readS3(values, faults)
  if (faults.length > 0) throw new ConfigError(faults)

  const heartbeatSec = must(values.heartbeatSec)
  const config: Config = {
    database: {
      url: values.databaseUrl,
      poolMax: must(values.databasePoolMax),
      prepare: must(values.databasePrepare),
      queryTimeoutSec: must(values.queryTimeoutSec),
      dataDir: must(values.dataDir),
    },
    heartbeatSec,
    leaseTimeoutSec: values.leaseTimeoutSec ?? 3 * heartbeatSec,
    maxAttempts: must(values.maxAttempts),
    backoffLadderMs: ladderOf(values),
    stages: stagePolicy({
      heartbeatSec,
      factors,
      defaultLeaseSec: must(values.defaultLeaseSec),
      maxRuntimeSec: must(values.maxRuntimeSec),
    }),
    tablesFile: values.tablesFile,
    queueProvider: must(values.queueProvider),
    pgbossSchema: must(values.pgbossSchema),
    reaper: {
      tables: tableNamesOf(env, values, 'reaperTables'),
      intervalSec: must(values.reaperIntervalSec),
      batchSize: must(values.reaperBatchSize),
      nullLeaseSec: must(values.reaperNullLeaseSec),
      queuedOrphanSec: must(values.queuedOrphanSec),
    },
    worker: {
      tables: tableNamesOf(env, values, 'workerTables'),
      handlers: values.workerHandlers,
      maxConcurrency: values.maxConcurrency,
      stageConcurrency,
      pollIntervalSec: must(values.pollIntervalSec),
      highWatermark: must(values.highWatermark),
      loadThreshold: must(values.loadThreshold),
      pauseIntervalSec: must(values.pauseIntervalSec),
      wedgeTimeoutSec: must(values.wedgeTimeoutSec),
      onLeaseUnknown: must(values.onLeaseUnknown),
      stallTimeoutSec: must(values.stallTimeoutSec),
      stageStallSec,
      shutdownTimeoutSec: must(values.shutdownTimeoutSec),
      httpPort: must(values.workerHttpPort),
    },
    scratch: {
      dir: must(values.scratchDir),
      keepOnSuccess: must(values.keepScratch),
      retentionHours: must(values.scratchRetentionHours),
    },
    storage: { dir: must(values.storageDir), s3 },
    // As in a URL, an IPv6 address may stand in brackets.
    http: { host: must(values.httpHost).replaceAll(/^\[|\]$/g, ''), port: must(values.httpPort) },
    dashboard: {
      port: must(values.dashboardHttpPort),
      token: values.operatorToken,
      hosts: values.operatorHosts ?? [],
    },
    logLevel: must(values.logLevel),
    warnings: [],
  }
  checkTogether(env, config, values, faults)
  if (faults.length > 0) throw new ConfigError(faults)
  return config
}

/** What everybody must agree on who judges when a job's time is up: reaper, supervisor, operator, doctor. */
export function recoverySettings({
  heartbeatSec,
  stages,
  leaseTimeoutSec,
  maxAttempts,
  backoffLadderMs,
  reaper,
}: Config) {
  const { nullLeaseSec, queuedOrphanSec } = reaper
  return { heartbeatSec, stages, leaseTimeoutSec, nullLeaseSec, queuedOrphanSec, maxAttempts, backoffLadderMs }
}

/** With a file of tables, names that nobody set are not the default ones but all of the file's. */
function tableNamesOf(env: Environment, values: Values, key: 'reaperTables' | 'workerTables'): string[] | null {
  const isSet = SETTINGS[key].names.some((name) => env[name] !== undefined)
  return values.tablesFile !== null && !isSet ? null : must(values[key])
}

/** Every name that is set is checked, also one that a stronger name overrules: it is a mistake either way. */
function readValues(env: Environment, faults: string[]): Values {
  const values: Record<string, unknown> = {}
  for (const [key, setting] of Object.entries<Setting>(SETTINGS)) {
    let chosen: unknown
    for (const name of setting.names) {
      const value = readOne(env, name, setting, faults)
      chosen ??= value
    }
    values[key] = chosen ?? (setting.fallback === null ? null : setting.kind.parse(setting.fallback))
  }
  return values as Values
}

function readFactors(env: Environment, values: Values, faults: string[]): Record<string, number> {
  const factors: Record<string, number> = {
    clip: values.clipFactor ?? 0,
    asr: values.asrFactor ?? 0,
    burnin: values.burninFactor ?? 0,
  }
  for (const name of Object.keys(env)) {
    const stage = STAGE_FACTOR.exec(name)?.[1]?.toLowerCase()
    if (stage === undefined || Object.hasOwn(factors, stage)) continue
    const value = readOne(env, name, { kind: stageFactorKind, fallback: null }, faults)
    if (value !== undefined) factors[stage] = value as number
  }
  return factors
}

/** `<STAGE>_…` for any stage: ASR_MAX_CONCURRENCY=1 becomes { asr: 1 }. */
function readByStage(env: Environment, name: RegExp, kind: Setting['kind'], faults: string[]): Record<string, number> {
  const byStage: Record<string, number> = {}
  for (const variable of Object.keys(env)) {
    const stage = name.exec(variable)?.[1]?.toLowerCase()
    if (stage === undefined) continue
    const value = readOne(env, variable, { kind, fallback: null }, faults)
    if (value !== undefined) byStage[stage] = value as number
  }
  return byStage
}

function readS3(values: Values, faults: string[]): S3Config | null {
  const {
    s3Bucket: bucket,
    s3Endpoint: endpoint,
    s3AccessKeyId: accessKeyId,
    s3SecretAccessKey: secretAccessKey,
  } = values
  if (bucket === null) return null
  const needed = { S3_ENDPOINT: endpoint, S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey }
  for (const [name, value] of Object.entries(needed)) {
    if (value === null) faults.push(`${name}: expected a value because S3_BUCKET is set, got none`)
  }
  if (endpoint === null || accessKeyId === null || secretAccessKey === null) return null
  return { bucket, endpoint, region: must(values.s3Region), accessKeyId, secretAccessKey }
}

function readOne(
  env: Environment,
  name: string,
  setting: Pick<Setting, 'kind' | 'fallback' | 'secret'>,
  faults: string[],
): unknown {
  const raw = env[name]
  if (raw === undefined) return undefined
  const parsed = setting.kind.safeParse(raw)
  if (parsed.success) return parsed.data
  const came =
    raw.trim() === '' ? 'an empty value' : setting.secret ? 'something else' : JSON.stringify(raw.slice(0, 80))
  const remedy = setting.fallback === null ? 'remove it to leave it unset' : `remove it to use ${setting.fallback}`
  faults.push(`${name}: ${parsed.error.issues[0]?.message ?? 'not understood'}, got ${came} (${remedy})`)
  return undefined
}

function ladderOf({ backoffBaseMs: base, backoffMaxMs: max }: Values): readonly number[] {
  if (base === null && max === null) return DEFAULT_BACKOFF_LADDER_MS
  if (base === null) return backoffLadder(Math.min(30_000, max ?? 0), max ?? 0)
  return backoffLadder(base, max ?? Math.max(base, 600_000))
}

/** Settings that are each fine and fight each other. */
function checkTogether(env: Environment, config: Config, values: Values, faults: string[]): void {
  const { heartbeatSec, stages, leaseTimeoutSec, reaper } = config
  const leaseName = nameInForce(env, 'defaultLeaseSec')
  const heartbeatName = nameInForce(env, 'heartbeatSec')
  if (stages.defaultLeaseSec < 2 * heartbeatSec) {
    faults.push(
      `${leaseName}: expected at least two heartbeats (${2 * heartbeatSec} s with ${heartbeatName}=${heartbeatSec}), got ${stages.defaultLeaseSec}`,
    )
  }
  if (leaseTimeoutSec < 2 * heartbeatSec) {
    faults.push(
      `LEASE_TIMEOUT_SEC: expected at least two heartbeats (${2 * heartbeatSec} s with ${heartbeatName}=${heartbeatSec}), got ${leaseTimeoutSec}`,
    )
  }
  if (values.backoffBaseMs !== null && values.backoffMaxMs !== null && values.backoffBaseMs > values.backoffMaxMs) {
    faults.push(
      `${nameInForce(env, 'backoffBaseMs')}: expected at most ${nameInForce(env, 'backoffMaxMs')} (${values.backoffMaxMs}), got ${values.backoffBaseMs}`,
    )
  }
  if (stages.defaultLeaseSec >= 2 * heartbeatSec && stages.defaultLeaseSec < 3 * heartbeatSec) {
    config.warnings.push(`${leaseName} is under three heartbeats: one lost renewal can cost a healthy job its lease`)
  }
  for (const [stage, factor] of Object.entries(stages.factors)) {
    if (factor < 3) {
      config.warnings.push(
        `${stage.toUpperCase()}_SLA_FACTOR=${factor} is below 3: the lease stays at three heartbeats`,
      )
    }
  }
  const shortest = shortestLeaseSec(stages)
  if (config.database.queryTimeoutSec > shortest / 2) {
    config.warnings.push(
      `QUERY_TIMEOUT_SEC is over half of the shortest lease (${shortest} s): a query that hangs can cost a healthy job its lease`,
    )
  }
  if (reaper.nullLeaseSec < leaseTimeoutSec) {
    config.warnings.push(
      'REAPER_NULL_LEASE_SEC is below LEASE_TIMEOUT_SEC: a job that never beats is reaped sooner than one that did',
    )
  }
}

function nameInForce(env: Environment, key: Key): string {
  const names: readonly string[] = SETTINGS[key].names
  return names.find((name) => env[name] !== undefined) ?? SETTINGS[key].names[0]
}

function must<T>(value: T | null): T {
  if (value === null) throw new Error('a setting with a default came out empty')
  return value
}

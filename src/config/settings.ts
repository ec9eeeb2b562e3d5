/** Every environment variable we know: its names (the first one set wins), its kind, its default and what it does. */
import type { z } from 'zod'

import {
  factor,
  hostNames,
  milliseconds,
  onOff,
  oneOf,
  plainName,
  postgresUrl,
  seconds,
  tableNames,
  text,
  token,
  wholeNumber,
  zeroOrOne,
} from './kinds.ts'

export interface Setting<T = unknown> {
  /** In order of precedence: JOB_*, then the plain name, then QUEUE_*. */
  names: readonly [string, ...string[]]
  kind: z.ZodType<T>
  /** As it would be written in the environment; null when unset means something of its own. */
  fallback: string | null
  help: string
  /** Never shown: not in an error, a log line or a page. */
  secret?: boolean
}

const DAY = 24 * 3600

export const SETTINGS = {
  databaseUrl: setting({
    names: ['DATABASE_URL'],
    kind: postgresUrl(),
    fallback: null,
    help: 'Your PostgreSQL. Unset: an embedded one under DATA_DIR is started, migrated and used.',
    secret: true,
  }),
  databasePoolMax: setting({
    names: ['DATABASE_POOL_MAX'],
    kind: wholeNumber({ min: 1, max: 100 }),
    fallback: '4',
    help: 'Connections one process may open.',
  }),
  databasePrepare: setting({
    names: ['DATABASE_PREPARE'],
    kind: onOff(),
    fallback: 'off',
    help: 'Prepared statements: on saves planning on a direct connection; off works through PgBouncer in transaction mode.',
  }),
  queryTimeoutSec: setting({
    names: ['QUERY_TIMEOUT_SEC'],
    kind: seconds({ min: 0.1, max: 600 }),
    fallback: '10',
    help: 'Deadline of every query, kept by the client; a connection that misses it is replaced.',
  }),
  dataDir: setting({
    names: ['DATA_DIR'],
    kind: text('a folder'),
    fallback: '.data',
    help: 'Where the embedded database keeps its files.',
  }),
  heartbeatSec: setting({
    names: ['HEARTBEAT_INTERVAL_SEC', 'HEARTBEAT_SEC'],
    kind: seconds({ min: 0.1, max: 3600 }),
    fallback: '10',
    help: 'How often a worker renews its leases. Every stage lease is at least three of these.',
  }),
  defaultLeaseSec: setting({
    names: ['DEFAULT_LEASE_SEC', 'QUEUE_VISIBILITY_SEC'],
    kind: seconds({ min: 0.2, max: DAY }),
    fallback: '300',
    help: 'Lease of a job with an unknown stage or none; also the least a run deadline can be.',
  }),
  leaseTimeoutSec: setting({
    names: ['LEASE_TIMEOUT_SEC'],
    kind: seconds({ min: 0.2, max: DAY }),
    fallback: null,
    help: 'A job without a lease is stale when its heartbeat is older than this. Unset: three heartbeats.',
  }),
  maxAttempts: setting({
    names: ['JOB_MAX_ATTEMPTS', 'MAX_ATTEMPTS', 'QUEUE_MAX_ATTEMPTS'],
    kind: wholeNumber({ min: 1, max: 1_000_000 }),
    fallback: '3',
    help: 'Attempts of a job whose own max_attempts is NULL; column default, set by bun run migrate.',
  }),
  backoffBaseMs: setting({
    names: ['JOB_BACKOFF_MS_BASE', 'QUEUE_RETRY_BACKOFF_MS_BASE'],
    kind: milliseconds({ min: 1, max: 7 * DAY * 1000 }),
    fallback: null,
    help: 'Pause after the first attempt, doubled after each further one. Neither base nor max set: 30 s, 2 min, 10 min.',
  }),
  backoffMaxMs: setting({
    names: ['JOB_BACKOFF_MS_MAX', 'QUEUE_RETRY_BACKOFF_MS_MAX'],
    kind: milliseconds({ min: 1, max: 7 * DAY * 1000 }),
    fallback: null,
    help: 'Longest pause between attempts (before up to 10 % of jitter). Only base set: 600000 or base, whichever is more.',
  }),
  maxRuntimeSec: setting({
    names: ['JOB_MAX_RUNTIME_SEC'],
    kind: seconds({ min: 0, max: 365 * DAY }),
    fallback: '21600',
    help: 'Longest run of a job without expected_duration_ms, however faithfully it beats; 0: no limit.',
  }),
  clipFactor: slaFactor('CLIP_SLA_FACTOR', '6'),
  asrFactor: slaFactor('ASR_SLA_FACTOR', '12'),
  burninFactor: slaFactor('BURNIN_SLA_FACTOR', '8'),
  tablesFile: setting({
    names: ['LEASEHOLD_TABLES'],
    kind: text('the path of a JSON file or a module'),
    fallback: null,
    help: 'File that describes your tables: columns, status words, events, policy. Unset: tables in our own spelling.',
  }),
  reaperTables: setting({
    names: ['REAPER_TABLES'],
    kind: tableNames(),
    fallback: 'jobs,asr_jobs',
    help: 'Tables the reaper watches and bun run migrate prepares. With LEASEHOLD_TABLES: those of the file, unless set.',
  }),
  reaperIntervalSec: setting({
    names: ['REAPER_INTERVAL_SEC'],
    kind: seconds({ min: 0.2, max: DAY }),
    fallback: '60',
    help: 'Longest pause between two passes; the reaper wakes earlier when a lease ends.',
  }),
  reaperBatchSize: setting({
    names: ['REAPER_BATCH_SIZE'],
    kind: wholeNumber({ min: 1, max: 10_000 }),
    fallback: '1000',
    help: 'Most rows one statement moves; it is halved when a statement times out.',
  }),
  reaperNullLeaseSec: setting({
    names: ['REAPER_NULL_LEASE_SEC'],
    kind: seconds({ min: 1, max: 30 * DAY }),
    fallback: '3600',
    help: 'A job with neither lease nor heartbeat is stale when it started longer ago than this.',
  }),
  queuedOrphanSec: setting({
    names: ['QUEUED_ORPHAN_SEC'],
    kind: seconds({ min: 1, max: 30 * DAY }),
    fallback: '300',
    help: 'A job that is queued and due for longer than this was lost on its way: reported, or published again.',
  }),
  queueProvider: setting({
    names: ['QUEUE_PROVIDER'],
    kind: oneOf('poll', 'pgboss'),
    fallback: 'poll',
    help: 'How due jobs reach workers: poll (they ask the table) or pgboss (ids are published through pg-boss).',
  }),
  pgbossSchema: setting({
    names: ['PGBOSS_SCHEMA'],
    kind: plainName('the name of a schema'),
    fallback: 'pgboss',
    help: 'Schema of pg-boss, with QUEUE_PROVIDER=pgboss. Made when it is missing; never upgraded by us.',
  }),
  workerTables: setting({
    names: ['WORKER_TABLES'],
    kind: tableNames(),
    fallback: 'jobs',
    help: 'Tables that bun run start:worker takes jobs from. With LEASEHOLD_TABLES: those of the file, unless set.',
  }),
  workerHandlers: setting({
    names: ['WORKER_HANDLERS'],
    kind: text('the path of a module'),
    fallback: null,
    help: 'Module whose default export has one function per stage, for bun run start:worker.',
  }),
  maxConcurrency: setting({
    names: ['MAX_CONCURRENCY'],
    kind: wholeNumber({ min: 1, max: 10_000 }),
    fallback: null,
    help: 'Most jobs one worker runs at once. Unset: the number of cores. A stage may have its own, e.g. ASR_MAX_CONCURRENCY.',
  }),
  pollIntervalSec: setting({
    names: ['POLL_INTERVAL_SEC'],
    kind: seconds({ min: 0.05, max: 3600 }),
    fallback: '1',
    help: 'How often an idle worker looks for due jobs; while there is work it asks at once.',
  }),
  highWatermark: setting({
    names: ['HIGH_WATERMARK'],
    kind: wholeNumber({ min: 0, max: 10_000_000 }),
    fallback: '100',
    help: 'Backpressure: with more due jobs than this and load over LOAD_THRESHOLD, claiming pauses.',
  }),
  loadThreshold: setting({
    names: ['LOAD_THRESHOLD'],
    kind: factor({ min: 0, max: 1000 }),
    fallback: '0.9',
    help: 'Backpressure: load average per core above which the machine counts as busy.',
  }),
  pauseIntervalSec: setting({
    names: ['PAUSE_INTERVAL_SEC'],
    kind: seconds({ min: 0.05, max: 3600 }),
    fallback: '5',
    help: 'Backpressure: how long claiming pauses. Heartbeats go on.',
  }),
  wedgeTimeoutSec: setting({
    names: ['WEDGE_TIMEOUT_SEC'],
    kind: seconds({ min: 1, max: DAY }),
    fallback: '120',
    help: 'A main loop that has not moved for this long is not alive: its heartbeats stop.',
  }),
  onLeaseUnknown: setting({
    names: ['ON_LEASE_UNKNOWN'],
    kind: oneOf('continue', 'abort'),
    fallback: 'continue',
    help: 'When the database is away and a lease may have run out: go on, or abort (for effects outside the fence).',
  }),
  stallTimeoutSec: setting({
    names: ['STALL_TIMEOUT_SEC'],
    kind: seconds({ min: 0, max: DAY }),
    fallback: '0',
    help: 'Abort a job whose progress has not moved for this long; 0: never. A stage may have its own, e.g. CLIP_STALL_TIMEOUT_SEC.',
  }),
  shutdownTimeoutSec: setting({
    names: ['SHUTDOWN_TIMEOUT_SEC'],
    kind: seconds({ min: 0, max: DAY }),
    fallback: '25',
    help: 'How long running jobs may go on after SIGTERM before they are given back.',
  }),
  scratchDir: setting({
    names: ['SCRATCH_DIR'],
    kind: text('a folder'),
    fallback: '.scratch',
    help: 'Where every attempt gets a folder of its own.',
  }),
  keepScratch: setting({
    names: ['KEEP_SCRATCH_ON_SUCCESS'],
    kind: zeroOrOne(),
    fallback: '0',
    help: '1 keeps the scratch folder of a job that is done; that of a failed one is always kept.',
  }),
  scratchRetentionHours: setting({
    names: ['SCRATCH_RETENTION_HOURS'],
    kind: factor({ min: 0, max: 87_600 }),
    fallback: '72',
    help: 'Age from which bun run clean:scratch removes scratch folders.',
  }),
  storageDir: setting({
    names: ['STORAGE_DIR'],
    kind: text('a folder'),
    fallback: '.data/storage',
    help: 'Where artifacts go (results/{jobId}/clip.mp4) unless S3_BUCKET is set.',
  }),
  s3Bucket: setting({
    names: ['S3_BUCKET'],
    kind: text('the name of a bucket'),
    fallback: null,
    help: 'Put artifacts into this bucket of an S3-compatible storage instead.',
  }),
  s3Endpoint: setting({
    names: ['S3_ENDPOINT'],
    kind: text('a URL'),
    fallback: null,
    help: 'Its address, e.g. https://s3.example.com. Needed with S3_BUCKET.',
  }),
  s3Region: setting({
    names: ['S3_REGION'],
    kind: text('the name of a region'),
    fallback: 'us-east-1',
    help: 'Its region.',
  }),
  s3AccessKeyId: setting({
    names: ['S3_ACCESS_KEY_ID'],
    kind: text('an access key'),
    fallback: null,
    help: 'Its access key. Needed with S3_BUCKET.',
    secret: true,
  }),
  s3SecretAccessKey: setting({
    names: ['S3_SECRET_ACCESS_KEY'],
    kind: text('a secret key'),
    fallback: null,
    help: 'Its secret key. Needed with S3_BUCKET.',
    secret: true,
  }),
  httpHost: setting({
    names: ['HTTP_HOST'],
    kind: text('an address to listen on'),
    fallback: '127.0.0.1',
    help: 'Where the dashboard, /metrics, /healthz and /readyz listen. Anything but loopback needs OPERATOR_TOKEN.',
  }),
  httpPort: setting({
    names: ['HTTP_PORT'],
    kind: wholeNumber({ min: 0, max: 65_535 }),
    fallback: '9464',
    help: 'Their port; 0 takes any free one.',
  }),
  workerHttpPort: setting({
    names: ['WORKER_HTTP_PORT'],
    kind: wholeNumber({ min: 0, max: 65_535 }),
    fallback: '9465',
    help: 'A worker shows its /metrics, /healthz and /readyz here. Taken: it goes on without; 0 takes any free one.',
  }),
  dashboardHttpPort: setting({
    names: ['DASHBOARD_HTTP_PORT'],
    kind: wholeNumber({ min: 0, max: 65_535 }),
    fallback: '9466',
    help: 'Port of the dashboard when it runs alone (bun run start:dashboard); 0 takes any free one.',
  }),
  operatorToken: setting({
    names: ['OPERATOR_TOKEN'],
    kind: token(),
    fallback: null,
    help: 'Secret of at least 16 characters that allows actions on the dashboard. Unset: it only shows, on loopback alone.',
    secret: true,
  }),
  operatorHosts: setting({
    names: ['OPERATOR_HOSTS'],
    kind: hostNames(),
    fallback: null,
    help: 'Further names under which browsers may reach the dashboard, e.g. behind a proxy. Addresses and localhost always may.',
  }),
  logLevel: setting({
    names: ['LOG_LEVEL'],
    kind: oneOf('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'),
    fallback: 'info',
    help: 'Least level that is logged. JSON lines; pretty on a terminal.',
  }),
} as const

/** Any stage may bring its own factor: ENCODE_SLA_FACTOR=10 makes `encode` a known stage. */
export const STAGE_FACTOR = /^([A-Z][A-Z0-9_]*)_SLA_FACTOR$/
export const stageFactorKind: z.ZodType<number> = factor({ min: 1, max: 10_000 })

/** Further settings that any stage may have for itself. */
export const STAGE_CONCURRENCY = /^([A-Z][A-Z0-9_]*)_MAX_CONCURRENCY$/
export const stageConcurrencyKind: z.ZodType<number> = wholeNumber({ min: 0, max: 10_000 })
export const STAGE_STALL = /^([A-Z][A-Z0-9_]*)_STALL_TIMEOUT_SEC$/
export const stageStallKind: z.ZodType<number> = seconds({ min: 0, max: DAY })

function slaFactor(name: string, fallback: string): Setting<number> {
  const stage = name.replace('_SLA_FACTOR', '').toLowerCase()
  return setting({
    names: [name],
    kind: factor({ min: 1, max: 10_000 }),
    fallback,
    help: `How many heartbeats stage ${stage} may miss; its lease is this many heartbeats, at least three. Any stage may have one.`,
  })
}

function setting<T>(definition: Setting<T>): Setting<T> {
  return definition
}

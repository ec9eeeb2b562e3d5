/** Every metric we export, in one list. docs/metrics.md is held against it by a test. */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'

import { REAP_RULES } from '../job/recovery.ts'

export interface MetricDefinition {
  kind: 'counter' | 'gauge' | 'histogram'
  help: string
  labels: readonly string[]
  /** The name in the documents this product comes from. */
  seed?: string
}

export const METRICS = {
  reaper_requeues_total: counter('Jobs the reaper put back in the queue.', ['table', 'stage'], 'reaper.requeues'),
  reaper_failures_total: counter(
    'Jobs the reaper failed because no attempt was left.',
    ['table', 'stage'],
    'reaper.failures',
  ),
  reaper_scan_duration_ms: {
    kind: 'histogram',
    help: 'Time of one pass over one table, in milliseconds.',
    labels: ['table'],
    seed: 'reaper.scan_duration_ms',
  },
  reaper_passes_total: counter('Passes over a table by outcome: ok, error, or yielded to another reaper.', [
    'table',
    'outcome',
  ]),
  reaper_last_success_age_seconds: gauge('Seconds since the last pass that went through; who watches the reaper?', [
    'table',
  ]),
  reaper_leader: gauge('1 when the last pass found no other reaper at the table, else 0.', ['table']),
  reaper_table_accepted: gauge('1 when the table fits its profile; 0 when the reaper refuses to touch it.', ['table']),
  reaper_outage_holds: gauge(
    'Jobs left alone because the database was away and their holder had no chance to check in.',
    ['table'],
  ),
  reaper_isolated_rows: gauge('Rows that break their statement and are set aside for an interval.', ['table']),
  reaper_mass_expiries_total: counter('Passes in which more than half of at least ten held leases ran out at once.', [
    'table',
  ]),
  reaper_undispatched_total: counter('Queued jobs that nobody took, by outcome: republished or failed.', [
    'table',
    'outcome',
  ]),
  dispatch_published_total: counter('Jobs handed to the dispatcher.', ['table']),
  dispatch_failures_total: counter('Jobs that could not be handed to the dispatcher; they are offered again later.', [
    'table',
  ]),
  job_rows: gauge('Jobs per status; counts stop at 100000, done is an estimate.', ['table', 'status']),
  job_due: gauge('Queued jobs that may run now.', ['table']),
  job_oldest_due_age_seconds: gauge('How long the oldest due job has been waiting.', ['table']),
  job_undispatched: gauge('Jobs that are due for so long that they must have been lost on their way to a worker.', [
    'table',
  ]),
  job_held_leases: gauge('Processing jobs that have a lease.', ['table']),
  job_expired_leases: gauge('Processing jobs whose time has run out; about 0 while a reaper lives.', ['table']),
  job_nearest_lease_end_seconds: gauge('Seconds until the nearest lease ends; negative when it is over.', ['table']),
  database_up: gauge('1 when the last query was answered, else 0.', []),
  database_client_replacements_total: counter(
    'Clients that missed a deadline or lost a connection and were replaced.',
    [],
  ),
  worker_inflight_jobs: {
    kind: 'gauge',
    help: 'Jobs this worker is running.',
    labels: [],
    seed: 'worker.inflight_jobs',
  },
  worker_pauses_total: counter(
    'Pauses of claiming because much was waiting and the machine was busy.',
    [],
    'worker.pauses_total',
  ),
  worker_heartbeats_total: counter(
    'Renewals asked for, by outcome: renewed, lost, busy, error.',
    ['outcome'],
    'worker.heartbeats_total',
  ),
  worker_lost_leases_total: counter('Leases that turned out to be lost at a heartbeat or a finish.', ['table']),
  worker_recovered_jobs_total: counter(
    'Jobs put back in the queue after their worker was gone, by rule.',
    ['reason'],
    'worker.recovered_jobs_total{reason}',
  ),
  worker_retry_attempts_total: counter(
    'Transient failures that were queued again, by code.',
    ['code'],
    'worker.retry_attempts_total{code}',
  ),
  worker_duplicate_skips_total: counter(
    'Claims of a job that already had a live lease.',
    [],
    'worker.duplicate_skips_total',
  ),
  worker_atomic_acquire_fail_total: counter(
    'Claims that lost the race for a job.',
    [],
    'worker.atomic_acquire_fail_total',
  ),
  worker_dispatch_skips_total: counter(
    'Delivered jobs that were not taken, by code: NOT_FOUND, NOT_QUEUED, NOT_DUE, NO_ATTEMPTS_LEFT, NOT_HERE.',
    ['table', 'code'],
  ),
  operator_actions_total: counter('Jobs that a person moved by hand, by action: retry, cancel, end_lease.', [
    'table',
    'action',
  ]),
} as const satisfies Record<string, MetricDefinition>

const DISPATCH_SKIPS = ['NOT_FOUND', 'NOT_QUEUED', 'NOT_DUE', 'NO_ATTEMPTS_LEFT', 'NOT_HERE'] as const
/** Why a delivered job was not taken; `NOT_HERE`: this worker has no handler or no slot for it. */
export type DispatchSkip = (typeof DISPATCH_SKIPS)[number]

type Name = keyof typeof METRICS
type Labels<N extends Name> = Record<(typeof METRICS)[N]['labels'][number], string>

export interface Metrics {
  /** Adds to a counter; call it after the commit, with what really happened. */
  count<N extends Name>(name: N, labels: Labels<N>, by?: number): void
  set<N extends Name>(name: N, labels: Labels<N>, value: number): void
  observe<N extends Name>(name: N, labels: Labels<N>, value: number): void
  /** The exposition text, from memory. */
  text(): Promise<string>
  /** A stage as a label: known ones by name, so that no row can flood the series. */
  stageLabel(stage: string | null): string
}

const SCAN_BUCKETS_MS = [1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]

/** Codes that may stand in a label; everything else is OTHER. */
const KNOWN_CODES: ReadonlySet<string> = new Set([
  'TIMEOUT',
  'NETWORK',
  'STORAGE',
  'CHILD_KILLED',
  'CHILD_FAILED',
  'LEASE_UNKNOWN',
  'EMPTY_ARTIFACT',
  'RUN_DEADLINE',
  'STALLED',
  'UNKNOWN',
])

export function codeLabel(code: string): string {
  return KNOWN_CODES.has(code) ? code : 'OTHER'
}

export function createMetrics(options: { stages: readonly string[]; tables: readonly string[] }): Metrics {
  const registry = new Registry()
  const stages = new Set(options.stages)
  const instruments = new Map<string, Counter | Gauge | Histogram>()
  for (const [name, definition] of Object.entries<MetricDefinition>(METRICS)) {
    instruments.set(name, instrument(name, definition, registry))
  }

  const metrics: Metrics = {
    count: (name, labels, by = 1) => (instruments.get(name) as Counter).inc(labels, by),
    set: (name, labels, value) => (instruments.get(name) as Gauge).set(labels, value),
    observe: (name, labels, value) => (instruments.get(name) as Histogram).observe(labels, value),
    text: () => registry.metrics(),
    stageLabel: (stage) => (stage === null ? 'none' : stages.has(stage) ? stage : 'other'),
  }
  startAtZero(metrics, options)
  addProcessMetrics(registry)
  return metrics
}

/** A series that is born with its first event hides that event from increase(): every known one starts at 0. */
function startAtZero(
  metrics: Metrics,
  { stages, tables }: { stages: readonly string[]; tables: readonly string[] },
): void {
  for (const table of tables) {
    for (const stage of [...stages, 'other', 'none']) {
      metrics.count('reaper_requeues_total', { table, stage }, 0)
      metrics.count('reaper_failures_total', { table, stage }, 0)
    }
    for (const outcome of ['ok', 'error', 'yielded']) metrics.count('reaper_passes_total', { table, outcome }, 0)
    metrics.count('reaper_mass_expiries_total', { table }, 0)
    metrics.count('worker_lost_leases_total', { table }, 0)
    metrics.count('dispatch_published_total', { table }, 0)
    metrics.count('dispatch_failures_total', { table }, 0)
    for (const code of DISPATCH_SKIPS) metrics.count('worker_dispatch_skips_total', { table, code }, 0)
    for (const action of ['retry', 'cancel', 'end_lease']) metrics.count('operator_actions_total', { table, action }, 0)
    for (const outcome of ['republished', 'failed']) metrics.count('reaper_undispatched_total', { table, outcome }, 0)
  }
  for (const reason of REAP_RULES) {
    metrics.count('worker_recovered_jobs_total', { reason }, 0)
  }
  for (const code of [...KNOWN_CODES, 'OTHER']) metrics.count('worker_retry_attempts_total', { code }, 0)
  for (const outcome of ['renewed', 'lost', 'busy', 'error']) metrics.count('worker_heartbeats_total', { outcome }, 0)
}

/** The process metrics that mean something on Bun; the others are always empty or wrong there. */
function addProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
  for (const name of registry.getMetricsAsArray().map((metric) => metric.name)) {
    const isUseful = /^(process_cpu|process_resident|process_open_fds|process_start_time|nodejs_eventloop_lag)/.test(
      name,
    )
    if (!isUseful && !(name in METRICS)) registry.removeSingleMetric(name)
  }
}

function instrument(name: string, definition: MetricDefinition, registry: Registry): Counter | Gauge | Histogram {
  const options = { name, help: definition.help, labelNames: [...definition.labels], registers: [registry] }
  if (definition.kind === 'counter') return new Counter(options)
  if (definition.kind === 'gauge') return new Gauge(options)
  return new Histogram({ ...options, buckets: SCAN_BUCKETS_MS })
}

function counter<const L extends readonly string[]>(help: string, labels: L, seed?: string) {
  return { kind: 'counter', help, labels, ...(seed ? { seed } : {}) } as const
}

function gauge<const L extends readonly string[]>(help: string, labels: L) {
  return { kind: 'gauge', help, labels } as const
}

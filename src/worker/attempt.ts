/** One attempt of one job: runs its handler, watches its deadlines, and ends it behind its fence. */
import { setTimeout as sleep } from 'node:timers/promises'

import { releaseJob } from '../db/attempt.ts'
import type { Database } from '../db/client.ts'
import { describeError } from '../db/errors.ts'
import type { FinishedRow } from '../db/finish.ts'
import type { TableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import { onceMore } from '../db/retry.ts'
import { classifyError, type FailureDetails } from '../job/failure.ts'
import { createProgressGate } from '../job/progress.ts'
import { runDeadlineSec, type StagePolicy } from '../job/stage.ts'
import { artifactKey, type Storage } from '../storage/storage.ts'
import type { Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import { reuse } from './artifact.ts'
import { createRunner } from './child.ts'
import { artifactName, createContext } from './context.ts'
import { fencedWrites, LeaseLost } from './fenced-writes.ts'
import { type Handler, type HandlerContext, JobError } from './handler.ts'
import type { Heartbeats } from './heartbeat.ts'
import type { ClaimedJob, Lease, Leases } from './lease.ts'
import { openScratch, removeScratch, type ScratchPlace, sizeOf } from './scratch.ts'

export interface AttemptTools {
  db: Database
  profile: Profile
  handle: TableHandle
  /** Tells whoever waits for jobs that this one is in the queue again. */
  offer: (id: string) => Promise<void>
  leases: Leases
  heartbeats: Heartbeats
  storage: Storage
  stages: StagePolicy
  maxAttempts: number
  scratch: { dir: string; keepOnSuccess: boolean }
  stallSec: (stage: string | null) => number
  onLeaseUnknown: 'continue' | 'abort'
  log: Log
  metrics: Metrics | undefined
  /** Aborted when the worker stops and this attempt has outlasted its welcome. */
  shutdown: AbortSignal
}

class Shutdown extends JobError {
  constructor() {
    super('SHUTDOWN', 'the worker is stopping')
  }
}

/** `kept`: nobody could be told; the lease runs out by itself. */
type Outcome = FinishedRow['status'] | 'lost' | 'kept'

/** How long a handler may take to settle after it was aborted, before it is left to itself. */
const ABORT_GRACE_MS = 3000
const MAX_TIMER_MS = 2 ** 31 - 1

export async function runAttempt(claimed: ClaimedJob, handler: Handler | null, tools: AttemptTools): Promise<void> {
  const { lease } = claimed
  const { heartbeats, log, metrics } = tools
  const abort = new AbortController()
  let isLossCounted = false
  let isEnding = false
  const lose = (): void => {
    if (!isLossCounted) metrics?.count('worker_lost_leases_total', { table: lease.table })
    isLossCounted = true
    abort.abort(new LeaseLost(lease))
  }
  heartbeats.hold(lease, {
    // A beat that crosses our own finish finds nothing to renew: that is no loss.
    onLost: () => isEnding || lose(),
    onUnknown: () => {
      if (tools.onLeaseUnknown === 'abort') abort.abort(new JobError('LEASE_UNKNOWN', 'renewals do not get through'))
    },
  })
  const onShutdown = (): void => abort.abort(new Shutdown())
  tools.shutdown.addEventListener('abort', onShutdown, { once: true })
  if (tools.shutdown.aborted) onShutdown()

  const runner = createRunner({ signal: abort.signal, log })
  const gate = createProgressGate(performance.now())
  const writes = fencedWrites(lease, tools, { signal: abort.signal, lose })
  const stopClocks = watchClocks(claimed, tools, gate, abort)
  const place = { root: tools.scratch.dir, jobId: lease.id, attempt: lease.attempt, holder: lease.holder }
  let scratchDir: string | null = null
  let outcome: Outcome = 'kept'
  try {
    const key = artifactKey(lease.id, artifactName(lease))
    if (await unlessAborted(reuse(tools.storage, key, { table: lease.table, jobId: lease.id }), abort.signal)) {
      isEnding = true
      outcome = await end(lease, null, tools, { short_circuit: true })
      return
    }
    if (!handler) throw new JobError('VALIDATION', `no handler for stage ${lease.stage ?? '(none)'}`)
    scratchDir = await unlessAborted(openScratch(place), abort.signal)
    gate.touch(performance.now())
    const context = createContext(claimed, { tools, writes, gate, signal: abort.signal, scratchDir, run: runner.run })
    await settleOrAbort(callSafely(handler, context), abort.signal)
    await runner.killAll()
    await writes.settled()
    isEnding = true
    outcome = await end(lease, null, tools)
    if (outcome === 'lost') lose()
  } catch (error) {
    // The abort is the cause, whatever the handler made of it.
    const cause = abort.signal.aborted ? (abort.signal.reason as unknown) : error
    await runner.killAll()
    await writes.settled()
    isEnding = true
    outcome = await endBadly(lease, cause, tools)
  } finally {
    stopClocks()
    tools.shutdown.removeEventListener('abort', onShutdown)
    heartbeats.drop(lease)
    // What the handler left running must not start anything more.
    abort.abort(new JobError('ATTEMPT_OVER', 'the attempt has ended'))
    if (scratchDir) await tidy({ ...place, scratchDir }, outcome === 'done', tools)
  }
}

/** A handler may also be a plain function that throws at once. */
async function callSafely(handler: Handler, context: HandlerContext): Promise<void> {
  await handler(context)
}

/** A handler that has not settled a moment after its abort is left to itself: everything it could still write is fenced. */
async function settleOrAbort(running: Promise<unknown>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = (): void => {
    setTimeout(() => aborted.reject(signal.reason as Error), ABORT_GRACE_MS).unref()
  }
  if (signal.aborted) onAbort()
  signal.addEventListener('abort', onAbort, { once: true })
  running.catch(() => undefined)
  aborted.promise.catch(() => undefined)
  try {
    await Promise.race([running, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
  signal.throwIfAborted()
}

/** A hung mount or a silent storage must not outlast the deadline or the shutdown. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const aborted = Promise.withResolvers<never>()
  const onAbort = (): void => aborted.reject(signal.reason as Error)
  work.catch(() => undefined)
  signal.throwIfAborted()
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([work, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/** Deadlines by the monotonic clock: a run that never ends, and one that is alive but does not move. */
function watchClocks(
  { lease, job }: ClaimedJob,
  tools: AttemptTools,
  gate: ReturnType<typeof createProgressGate>,
  abort: AbortController,
): () => void {
  const expected = Number(job[tools.profile.columns.expectedDurationMs ?? ''] ?? Number.NaN)
  const deadlineSec = runDeadlineSec(
    { stage: lease.stage, expectedDurationMs: expected > 0 ? expected : null },
    tools.stages,
  )
  const timers: NodeJS.Timeout[] = []
  if (deadlineSec !== null) {
    const fire = (): void => abort.abort(new JobError('RUN_DEADLINE', `still running after ${deadlineSec} s`))
    timers.push(setTimeout(fire, Math.min(deadlineSec * 1000, MAX_TIMER_MS)))
  }
  const stallMs = tools.stallSec(lease.stage) * 1000
  if (stallMs > 0) {
    const look = (): void => {
      const stillMs = performance.now() - gate.lastRiseMs(performance.now())
      if (stillMs > stallMs) abort.abort(new JobError('STALLED', `no progress for ${Math.round(stillMs / 1000)} s`))
    }
    timers.push(setInterval(look, Math.min(stallMs / 4, 1000)))
  }
  return () => timers.forEach((timer) => clearTimeout(timer))
}

/** The finish is said until the database has answered: the work is done, only the word is missing. */
async function end(
  lease: Lease,
  failure: FailureDetails | null,
  tools: AttemptTools,
  details?: Record<string, unknown>,
): Promise<Outcome> {
  for (let pauseMs = 200; ; pauseMs = Math.min(pauseMs * 2, 5000)) {
    const answer = await tools.leases.finishJob(lease, failure === null, failure ?? (details ? { told: details } : {}))
    if (answer.ok) return answer.value.status
    if (answer.code === 'LEASE_LOST') return 'lost'
    if (tools.shutdown.aborted) return 'kept'
    await sleep(pauseMs * (0.5 + Math.random() / 2))
  }
}

async function endBadly(lease: Lease, cause: unknown, tools: AttemptTools): Promise<Outcome> {
  const { log } = tools
  const facts = { table: lease.table, jobId: lease.id, attempt: lease.attempt, holder: lease.holder }
  if (cause instanceof LeaseLost) {
    log.warn(facts, 'lease:lost')
    return 'lost'
  }
  if (cause instanceof Shutdown) {
    const status = await tools.handle
      .use((table) => onceMore(() => releaseJob(tools.db, table, lease, { maxAttempts: tools.maxAttempts })))
      .catch((error: unknown) => {
        log.error({ ...facts, error: describeError(error) }, 'job could not be given back; its lease will run out')
        return null
      })
    if (status === 'queued') await tools.offer(lease.id)
    log.info({ ...facts, status }, 'aborted:shutdown')
    return status ?? 'kept'
  }
  const failure = classifyError(cause)
  log.warn({ ...facts, code: failure.code, reason: failure.reason }, 'attempt failed')
  return end(lease, failure, tools)
}

async function tidy(
  place: ScratchPlace & { scratchDir: string },
  isDone: boolean,
  { scratch, log }: AttemptTools,
): Promise<void> {
  const { scratchDir, jobId } = place
  try {
    if (isDone && !scratch.keepOnSuccess) await removeScratch(place)
    else log.info({ jobId, scratchDir, bytes: await sizeOf(scratchDir) }, 'scratch kept')
  } catch (error) {
    log.warn({ jobId, scratchDir, error: describeError(error) }, 'scratch could not be tidied')
  }
}

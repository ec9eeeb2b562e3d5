/** Whole stories of the worker: killed, stopped, blocked, cut off, redeployed. Real processes, real signals. */
import { describe, expect, test } from 'bun:test'
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from 'postgres'

import { startCluster } from '../support/cluster.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { isAlive } from '../support/processes.ts'
import { startProxy } from '../support/proxy.ts'
import { runProgram } from '../support/program.ts'
import { countByStatus, eventTypes, insertJob, readEvents, readJob } from '../support/rows.ts'
import { testFolder } from '../support/test-folder.ts'
import { brokenInvariants } from '../support/witness.ts'
import { childPid, openPlace, startUnsupervised, startWorker, TEST_PACE } from '../support/worker.ts'

const put = (sql: Sql, payload: object, columns = {}): Promise<string> =>
  insertJob(sql, 'jobs', { stage: `'clip'`, payload: `'${JSON.stringify(payload)}'`, ...columns })
const statusOf = async (sql: Sql, id: string): Promise<string> => (await readJob(sql, 'jobs', id)).status
const reaperEnv = (url: string): Record<string, string> => ({ ...TEST_PACE, DATABASE_URL: url, LOG_LEVEL: 'warn' })

describe('the good day', () => {
  test('a job is claimed, told, published and done; its scratch is gone', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { progress: [0, 50, 50.2, 100], publish: 'the clip' })
    await using worker = startWorker(t.url, place)
    await eventually(async () => (await statusOf(t.sql, id)) === 'done')
    expect(await eventTypes(t.sql, id)).toEqual([
      'processing',
      'source:ready',
      'progress',
      'progress',
      'progress',
      'uploaded',
      'done',
    ])
    expect(readFileSync(join(place.storage, 'results', id, 'clip.mp4'), 'utf8')).toBe('the clip')
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ progress: 100, attempt_count: 1 })
    worker.process.kill('SIGTERM')
    expect(await worker.ended).toEqual({ code: 0, signal: null })
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('told to leave .env files alone, the worker under the supervisor leaves them alone too', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    using folder = testFolder()
    folder.write('.env', 'LOAD_THRESHOLD=nonsense\n')
    const id = await put(t.sql, { publish: 'the clip' })
    await using worker = startWorker(t.url, place, {}, folder.path)
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { what: worker.output() })
  })

  test('failures: permanent ends at once, transient is tried again, and whatever is thrown can be stored', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const [permanent, transient, nothing] = [
      await put(t.sql, { fail: 'permanent' }),
      await put(t.sql, { fail: 'transient' }),
      await put(t.sql, { fail: 'undefined' }, { max_attempts: '1' }),
    ]
    await using worker = startWorker(t.url, place)
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).failed === 3)
    expect(await readJob(t.sql, 'jobs', permanent)).toMatchObject({
      fail_code: 'VALIDATION',
      fail_reason: 'no such codec',
      attempt_count: 1,
    })
    expect(await readJob(t.sql, 'jobs', transient)).toMatchObject({
      fail_code: 'RETRIES_EXHAUSTED',
      fail_reason: 'NETWORK',
      attempt_count: 3,
    })
    expect(await readJob(t.sql, 'jobs', nothing)).toMatchObject({
      fail_code: 'RETRIES_EXHAUSTED',
      fail_reason: 'UNKNOWN',
    })
    expect(worker.lines().filter((line) => line.msg === 'scratch kept').length).toBeGreaterThan(0)
  })
})

describe('crashes', () => {
  test('W1: under the supervisor a killed worker gives its job back at once, with the cause', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { ms: 3000 })
    await using worker = startWorker(t.url, place, { CLIP_SLA_FACTOR: '100' })
    await eventually(() => place.notes().length === 1)
    process.kill(await childPid(worker), 'SIGKILL')
    await eventually(async () => (await readEvents(t.sql, id)).some((event) => event.type === 'reaper:requeued'), {
      withinMs: 5000,
    })
    const requeued = (await readEvents(t.sql, id)).find((event) => event.type === 'reaper:requeued')
    expect(requeued?.details).toMatchObject({ reason: 'worker_exit', cause: 'killed by SIGKILL', attempt: 1 })
    await eventually(async () => (await statusOf(t.sql, id)) === 'done')
    expect((await readJob(t.sql, 'jobs', id)).attempt_count).toBe(2)
    expect((await eventTypes(t.sql, id)).filter((type) => type === 'done')).toHaveLength(1)
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 30_000)

  test('without it the reaper takes the job when its lease ends, and another worker finishes it', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { ms: 2500 })
    await using reaper = runProgram('reaper.ts', reaperEnv(t.url))
    await using doomed = startUnsupervised(t.url, place, 'doomed')
    await eventually(() => place.notes().length === 1)
    doomed.process.kill('SIGKILL')
    await using other = startWorker(t.url, place)
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { withinMs: 20_000 })
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ attempt_count: 2 })
    const reasons = (await readEvents(t.sql, id)).map((event) => event.details.reason).filter(Boolean)
    expect(new Set(reasons)).toEqual(new Set(['lease_expired']))
    expect(await brokenInvariants(t.sql)).toEqual([])
    expect([reaper.process.exitCode, other.process.exitCode]).toEqual([null, null])
  }, 40_000)

  test('W9: a job that kills its worker every time fails after exactly max_attempts claims, its neighbours finish', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const poison = await put(t.sql, { crashes: 99 })
    for (let n = 0; n < 6; n += 1) await put(t.sql, { ms: 50 }, { max_attempts: '20' })
    await using worker = startWorker(t.url, place, { MAX_CONCURRENCY: '3' })
    await eventually(
      async () => (await countByStatus(t.sql, 'jobs')).done === 6 && (await statusOf(t.sql, poison)) === 'failed',
      { withinMs: 30_000 },
    )
    expect(await readJob(t.sql, 'jobs', poison)).toMatchObject({
      attempt_count: 3,
      fail_code: 'worker_exit',
      fail_reason: 'exit code 7',
    })
    expect((await eventTypes(t.sql, poison)).filter((type) => type === 'processing')).toHaveLength(3)
    expect(worker.lines().filter((line) => line.msg === 'worker ended').length).toBe(3)
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 60_000)

  test('X8: an error that belongs to no handler ends the worker, not the job', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const ids = [await put(t.sql, { stray: 'throw', ms: 300 }), await put(t.sql, { stray: 'reject', ms: 300 })]
    await using worker = startWorker(t.url, place, { MAX_CONCURRENCY: '1' })
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 2, { withinMs: 20_000 })
    for (const id of ids) {
      const requeued = (await readEvents(t.sql, id)).find((event) => event.type === 'reaper:requeued')
      expect(requeued?.details).toMatchObject({ reason: 'worker_exit', cause: 'exit code 1' })
    }
    expect(worker.output()).toContain('stray')
  }, 30_000)

  test('a handler that leaves the process with code 0 or 2 is a crash like any other', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const ids = [await put(t.sql, { exit: 0 }), await put(t.sql, { exit: 2 })]
    await using worker = startWorker(t.url, place, { MAX_CONCURRENCY: '1' })
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 2, { withinMs: 20_000 })
    for (const id of ids) expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ attempt_count: 2 })
    expect(worker.process.exitCode).toBeNull()
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 30_000)

  test('a program that a handler did not wait for costs its neighbours nothing', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const neighbour = await put(t.sql, { ms: 1500 })
    const careless = await put(t.sql, { careless: true }, { max_attempts: '1' })
    await using worker = startWorker(t.url, place, { MAX_CONCURRENCY: '2' })
    await eventually(async () => (await statusOf(t.sql, neighbour)) === 'done', { withinMs: 20_000 })
    expect(await readJob(t.sql, 'jobs', careless)).toMatchObject({ status: 'failed', fail_reason: 'CHILD_FAILED' })
    expect(await readJob(t.sql, 'jobs', neighbour)).toMatchObject({ attempt_count: 1 })
    expect(worker.lines().filter((line) => line.msg === 'worker ended')).toHaveLength(0)
  }, 30_000)

  test('a worker whose supervisor is killed stops by itself, and gives its job back', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { ms: 60_000 })
    // Away from our bunfig.toml, whose noOrphans would end the worker on the spot.
    await using worker = startWorker(t.url, place, { SHUTDOWN_TIMEOUT_SEC: '0' }, '/tmp')
    await eventually(() => place.notes().length === 1)
    const child = await childPid(worker)
    worker.process.kill('SIGKILL')
    await eventually(() => !isAlive(child), { what: 'the orphaned worker has ended' })
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ status: 'queued', attempt_count: 1, max_attempts: 4 })
    expect((await eventTypes(t.sql, id)).at(-1)).toBe('aborted:shutdown')
  }, 30_000)

  test('W3: killed after it published and before it finished, the retry is done without running again', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { publish: 'once only', exitAfterPublish: true })
    await using worker = startWorker(t.url, place)
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { withinMs: 20_000 })
    expect(place.notes().filter((line) => line.startsWith('start'))).toHaveLength(1)
    const done = (await readEvents(t.sql, id)).find((event) => event.type === 'done')
    expect(done?.details).toMatchObject({ short_circuit: true, attempt: 2 })
    expect(statSync(join(place.storage, 'results', id, 'clip.mp4')).size).toBe(9)
    expect(worker.process.exitCode).toBeNull()
  }, 30_000)
})

describe('zombies', () => {
  test('Z1: a worker that is stopped for three leases wakes up, writes nothing, and goes on with fresh work', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { ms: 4000, publish: 'clip' })
    await using reaper = runProgram('reaper.ts', reaperEnv(t.url))
    await using frozen = startUnsupervised(t.url, place, 'frozen', { MAX_CONCURRENCY: '1' })
    await eventually(() => place.notes().length === 1)
    frozen.process.kill('SIGSTOP')
    await using other = startUnsupervised(t.url, place, 'other', { MAX_CONCURRENCY: '1' })
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { withinMs: 30_000 })
    const [before] = await t.sql`select max(seq) as seq from witness`
    const inode = statSync(join(place.storage, 'results', id, 'clip.mp4')).ino
    frozen.process.kill('SIGCONT')
    await eventually(() => place.notes().includes(`abort ${id} 1 LEASE_LOST`), { withinMs: 5000 })
    other.process.kill('SIGTERM')
    await other.ended
    const next = await put(t.sql, { ms: 10 })
    await eventually(async () => (await statusOf(t.sql, next)) === 'done')
    const written = await t.sql`select * from witness where seq > ${before?.seq} and id = ${id}`
    expect(written).toHaveLength(0)
    expect(statSync(join(place.storage, 'results', id, 'clip.mp4')).ino).toBe(inode)
    expect((await readJob(t.sql, 'jobs', next)).attempt_count).toBe(1)
    expect(await brokenInvariants(t.sql)).toEqual([])
    expect(reaper.process.exitCode).toBeNull()
  }, 60_000)

  test('Z3: a handler that blocks the main loop for three leases keeps its job; past the wedge limit it loses it', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using reaper = runProgram('reaper.ts', reaperEnv(t.url))
    const blocked = await put(t.sql, { blockMs: 9000 })
    await using patient = startUnsupervised(t.url, place, 'patient', { WEDGE_TIMEOUT_SEC: '60' })
    await eventually(async () => (await statusOf(t.sql, blocked)) === 'done', { withinMs: 20_000 })
    expect((await readJob(t.sql, 'jobs', blocked)).attempt_count).toBe(1)
    const told = await patient.said('main loop was blocked; heartbeats went on')
    expect(Number(told.lagMs)).toBeGreaterThan(7000)
    patient.process.kill('SIGTERM')
    await patient.ended

    const wedged = await put(t.sql, { blockMs: 8000 }, { max_attempts: '1' })
    await using strict = startUnsupervised(t.url, place, 'strict', { WEDGE_TIMEOUT_SEC: '1' })
    await eventually(async () => (await statusOf(t.sql, wedged)) === 'failed', { withinMs: 20_000 })
    expect(await readJob(t.sql, 'jobs', wedged)).toMatchObject({ fail_code: 'timeout', fail_reason: 'lease_expired' })
    expect(Number((await strict.said('main loop is wedged; heartbeats stop')).lagMs)).toBeGreaterThan(1000)
    expect(reaper.process.exitCode).toBeNull()
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 70_000)

  test('Z7: a handler that never settles ends at its deadline, one that does not move by its stall limit', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const endless = await put(t.sql, { never: true }, { expected_duration_ms: '100', max_attempts: '1' })
    const stalled = await put(t.sql, { never: true, progress: [10] }, { max_attempts: '1', stage: `'slow'` })
    await using worker = startWorker(t.url, place, {
      SLOW_STALL_TIMEOUT_SEC: '1',
      CLIP_SLA_FACTOR: '3',
      MAX_CONCURRENCY: '2',
      JOB_MAX_RUNTIME_SEC: '0',
    })
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).failed === 2, { withinMs: 20_000 })
    expect((await readJob(t.sql, 'jobs', endless)).fail_reason).toBe('RUN_DEADLINE')
    expect((await readJob(t.sql, 'jobs', stalled)).fail_reason).toBe('STALLED')
    expect(worker.process.exitCode).toBeNull()
  }, 40_000)
})

describe('the database', () => {
  test('N1: away for three leases while ten jobs run: all finish on their first attempt, warned of once', async () => {
    await using cluster = await startCluster()
    using place = openPlace()
    for (let n = 0; n < 10; n += 1) await put(cluster.sql, { ms: 8000 })
    await using reaper = runProgram('reaper.ts', reaperEnv(cluster.url))
    await using worker = startWorker(cluster.url, place, { MAX_CONCURRENCY: '10' })
    await eventually(() => place.notes().length === 10)
    await cluster.stop()
    await sleep(9000)
    await cluster.start()
    await eventually(async () => (await countByStatus(cluster.sql, 'jobs')).done === 10, { withinMs: 30_000 })
    const [attempts] = await cluster.sql`select max(attempt_count)::int as max from jobs`
    expect(attempts).toEqual({ max: 1 })
    expect(worker.lines().filter((line) => line.code === 'HEARTBEAT_DEGRADED')).toHaveLength(1)
    expect(await brokenInvariants(cluster.sql)).toEqual([])
    expect(reaper.process.exitCode).toBeNull()
  }, 70_000)

  test('with ON_LEASE_UNKNOWN=abort they are aborted when the lease may have run out, and run again', async () => {
    await using cluster = await startCluster()
    using place = openPlace()
    const id = await put(cluster.sql, { ms: 6000 })
    await using worker = startWorker(cluster.url, place, { ON_LEASE_UNKNOWN: 'abort' })
    await eventually(() => place.notes().length === 1)
    await cluster.stop()
    await eventually(() => place.notes().includes(`abort ${id} 1 LEASE_UNKNOWN`), { withinMs: 10_000 })
    await cluster.start()
    await eventually(async () => (await statusOf(cluster.sql, id)) === 'done', { withinMs: 30_000 })
    expect((await readJob(cluster.sql, 'jobs', id)).attempt_count).toBe(2)
    expect(worker.process.exitCode).toBeNull()
  }, 60_000)

  test('a finish whose answer is lost: one done, one event, one run, and the worker lives', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using proxy = await startProxy(t.url)
    const id = await put(t.sql, { ms: 1500 })
    await using worker = startWorker(proxy.url, place, { DATABASE_PREPARE: 'on', CLIP_SLA_FACTOR: '60' })
    await eventually(() => place.notes().length === 1)
    proxy.dropReplies()
    await eventually(() => place.notes().includes(`end ${id} 1`))
    await sleep(1500)
    proxy.heal()
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { withinMs: 20_000 })
    const next = await put(t.sql, { ms: 10 })
    await eventually(async () => (await statusOf(t.sql, next)) === 'done', { withinMs: 20_000 })
    expect((await eventTypes(t.sql, id)).filter((type) => type === 'done')).toHaveLength(1)
    expect(place.notes().filter((line) => line === `start ${id} 1`)).toHaveLength(1)
    expect(worker.lines().filter((line) => line.msg === 'worker ended')).toHaveLength(0)
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 50_000)
})

describe('redeploys', () => {
  test('X16, X17: what ends in time is done; the rest is given back, due at once, without costing an attempt', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const [quick, slow] = [await put(t.sql, { ms: 1500 }), await put(t.sql, { ms: 60_000 })]
    await using worker = startWorker(t.url, place, { MAX_CONCURRENCY: '2', SHUTDOWN_TIMEOUT_SEC: '3' })
    await eventually(() => place.notes().length === 2)
    const waiting = await put(t.sql, { ms: 1 })
    worker.process.kill('SIGTERM')
    expect(await worker.ended).toEqual({ code: 0, signal: null })
    expect(await statusOf(t.sql, quick)).toBe('done')
    expect(await readJob(t.sql, 'jobs', slow)).toMatchObject({
      status: 'queued',
      attempt_count: 1,
      max_attempts: 4,
      locked_by: null,
    })
    expect((await eventTypes(t.sql, slow)).at(-1)).toBe('aborted:shutdown')
    expect(await statusOf(t.sql, waiting)).toBe('queued')
    await using next = startWorker(t.url, place, { SHUTDOWN_TIMEOUT_SEC: '40' })
    await eventually(() => place.notes().includes(`start ${slow} 2`))
    next.process.kill('SIGTERM')
    await sleep(200)
    next.process.kill('SIGTERM')
    const stoppedAt = performance.now()
    await next.ended
    // Not after the time that the first signal would have given the job.
    expect(performance.now() - stoppedAt).toBeLessThan(20_000)
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 90_000)

  test('a job is released for free five times, then it pays for its attempts again', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, { ms: 60_000 }, { max_attempts: '1' })
    for (let round = 1; round <= 6; round += 1) {
      await using worker = startWorker(t.url, place, { SHUTDOWN_TIMEOUT_SEC: '0' })
      await eventually(() => place.notes().includes(`start ${id} ${round}`))
      worker.process.kill('SIGTERM')
      await worker.ended
    }
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({
      status: 'failed',
      attempt_count: 6,
      max_attempts: 6,
      fail_code: 'RETRIES_EXHAUSTED',
    })
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 60_000)

  test('a module that cannot be loaded, or has no handlers, is said and not restarted', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using missing = startWorker(t.url, place, { WORKER_HANDLERS: './nowhere.ts' })
    expect((await missing.ended).code).toBe(2)
    expect(missing.output()).toContain('WORKER_HANDLERS: ./nowhere.ts could not be loaded')
  })
})

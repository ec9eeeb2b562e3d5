/** Many jobs at once: limits that are never exceeded, nothing that leaks, and pauses under pressure. */
import { describe, expect, test } from 'bun:test'
import { readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { stagePolicy } from '../../src/job/stage.ts'
import { createLocalStorage } from '../../src/storage/local.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { createWorker, type WorkerOptions } from '../../src/worker/runtime.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { countByStatus, insertMany } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'
import { openPlace } from '../support/worker.ts'

const stages = stagePolicy({ heartbeatSec: 1, factors: { clip: 10, asr: 10 }, defaultLeaseSec: 10, maxRuntimeSec: 0 })

function options(url: string, place: ReturnType<typeof openPlace>): Omit<WorkerOptions, 'handlers'> {
  const scratch = { dir: place.env.SCRATCH_DIR ?? '', keepOnSuccess: false }
  return {
    databaseUrl: url,
    storage: createLocalStorage({ root: place.storage }),
    scratch,
    stages,
    heartbeatSec: 1,
    pollIntervalSec: 0.05,
  }
}

const openFiles = (): number => readdirSync('/proc/self/fd').length

test('X20, X22: 1,000 jobs, never more than three at once, and nothing is left over', async () => {
  await using t = await freshDatabase()
  using place = openPlace()
  const metrics = createMetrics({ stages: ['clip'], tables: ['jobs'] })
  await insertMany(t.sql, 'jobs', 100, { stage: `'clip'` })
  let [now, most] = [0, 0]
  const worker = createWorker({
    ...options(t.url, place),
    metrics,
    maxConcurrency: 3,
    handlers: {
      async clip({ run, progress }) {
        now += 1
        most = Math.max(most, now)
        await progress(50)
        await sleep(2)
        if (Math.random() < 0.05) await run(['true'])
        now -= 1
      },
    },
  })
  worker.start()
  await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 100, { withinMs: 30_000 })
  const [filesBefore, memoryBefore] = [openFiles(), process.memoryUsage.rss()]
  await insertMany(t.sql, 'jobs', 900, { stage: `'clip'` })
  await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 1000, { withinMs: 150_000, everyMs: 200 })
  expect(most).toBe(3)
  expect(openFiles()).toBeLessThanOrEqual(filesBefore + 2)
  expect(process.memoryUsage.rss() - memoryBefore).toBeLessThan(150_000_000)
  expect(await metrics.text()).toContain('worker_inflight_jobs 0')
  expect(readdirSync(place.env.SCRATCH_DIR ?? '')).toEqual([])
  await worker.stop()
  expect(await brokenInvariants(t.sql)).toEqual([])
}, 240_000)

describe('limits', () => {
  test('a stage with a limit of its own never takes more, and does not keep others from running', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await insertMany(t.sql, 'jobs', 20, { stage: `'asr'`, created_at: `now() - interval '1 hour'` })
    await insertMany(t.sql, 'jobs', 20, { stage: `'clip'` })
    const now: Record<string, number> = {}
    const most: Record<string, number> = {}
    const handler = (stage: string) => async (): Promise<void> => {
      now[stage] = (now[stage] ?? 0) + 1
      most[stage] = Math.max(most[stage] ?? 0, now[stage])
      await sleep(20)
      now[stage] -= 1
    }
    const worker = createWorker({
      ...options(t.url, place),
      maxConcurrency: 4,
      stageConcurrency: { asr: 1 },
      handlers: { asr: handler('asr'), clip: handler('clip') },
    })
    worker.start()
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 40)
    await worker.stop()
    expect(most.asr).toBe(1)
    expect(most.clip).toBeGreaterThan(1)
    expect(most.clip).toBeLessThanOrEqual(4)
  })

  test('X21: claiming pauses only while much is waiting and the machine is busy; running jobs keep their lease', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const metrics = createMetrics({ stages: ['clip'], tables: ['jobs'] })
    await insertMany(t.sql, 'jobs', 30, { stage: `'clip'` })
    let load = 0.1
    const worker = createWorker({
      ...options(t.url, place),
      metrics,
      maxConcurrency: 1,
      highWatermark: 5,
      pauseIntervalSec: 0.3,
      loadPerCore: () => load,
      handlers: { clip: () => sleep(30) },
    })
    const pauses = async (): Promise<number> => Number(/^worker_pauses_total (\d+)/m.exec(await metrics.text())?.[1])
    worker.start()
    await eventually(async () => ((await countByStatus(t.sql, 'jobs')).done ?? 0) >= 2)
    expect(await pauses()).toBe(0)
    load = 2
    await eventually(async () => (await pauses()) >= 2)
    const done = (await countByStatus(t.sql, 'jobs')).done ?? 0
    await eventually(async () => (await pauses()) >= 4)
    // An idle worker takes one job between two pauses, so that foreign load cannot stop it for ever.
    expect(((await countByStatus(t.sql, 'jobs')).done ?? 0) - done).toBeLessThanOrEqual(4)
    load = 0.1
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 30)
    await worker.stop()
  })

  test('a stage without a handler is left for a worker that has one', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await insertMany(t.sql, 'jobs', 1, { stage: `'unknown'` })
    await insertMany(t.sql, 'jobs', 1, { stage: 'null' })
    await insertMany(t.sql, 'jobs', 3, { stage: `'clip'` })
    const worker = createWorker({ ...options(t.url, place), handlers: { clip: () => Promise.resolve() } })
    worker.start()
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 3)
    const other = createWorker({ ...options(t.url, place), handlers: { default: () => Promise.resolve() } })
    expect(await countByStatus(t.sql, 'jobs')).toEqual({ done: 3, queued: 2 })
    other.start()
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 5)
    await Promise.all([worker.stop(), other.stop()])
  })

  test('one table that cannot be used does not keep the other from being worked on', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await t.sql`drop table asr_jobs`
    await insertMany(t.sql, 'jobs', 3, { stage: `'clip'` })
    const worker = createWorker({
      ...options(t.url, place),
      tables: ['asr_jobs', 'jobs'],
      handlers: { default: () => Promise.resolve() },
    })
    worker.start()
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 3)
    await eventually(() => worker.obstacles().join().includes('there is no table asr_jobs'))
    await worker.stop()
  })

  test('a long queue in one table does not starve the other', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await insertMany(t.sql, 'jobs', 500, { stage: `'clip'` })
    await insertMany(t.sql, 'asr_jobs', 1, { stage: `'asr'` })
    const worker = createWorker({
      ...options(t.url, place),
      maxConcurrency: 1,
      tables: ['jobs', 'asr_jobs'],
      handlers: { default: () => sleep(5) },
    })
    worker.start()
    await eventually(async () => (await countByStatus(t.sql, 'asr_jobs')).done === 1)
    expect((await countByStatus(t.sql, 'jobs')).queued).toBeGreaterThan(300)
    await worker.stop()
  })

  test('a job is given back also when its connections were cut a moment before the shutdown', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await insertMany(t.sql, 'jobs', 1, { stage: `'clip'` })
    const worker = createWorker({
      ...options(t.url, place),
      shutdownTimeoutSec: 0,
      handlers: { clip: ({ signal }) => sleep(60_000, undefined, { signal }) },
    })
    worker.start()
    await eventually(() => worker.inFlight() === 1)
    await t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold worker' and datname = current_database()`
    await worker.stop()
    const [row] = await t.sql`select status, attempt_count, max_attempts, locked_by from jobs`
    expect(row).toEqual({ status: 'queued', attempt_count: 1, max_attempts: 4, locked_by: null })
  })

  test('X19: a claim that is under way when the worker is told to stop strands nothing', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    let runs = 0
    const worker = createWorker({
      ...options(t.url, place),
      handlers: {
        clip() {
          runs += 1
          return Promise.resolve()
        },
      },
    })
    worker.start()
    await insertMany(t.sql, 'asr_jobs', 1, { stage: `'clip'` })
    const stopped = await t.sql.begin(async (host) => {
      await host`lock table jobs in access exclusive mode`
      await host`insert into jobs (stage) values ('clip')`
      const waiting = (): PromiseLike<readonly unknown[]> =>
        t.sql`select 1 from pg_stat_activity where application_name = 'leasehold worker' and wait_event_type = 'Lock' and datname = current_database()`
      await eventually(async () => (await waiting()).length > 0, { what: 'the claim waits' })
      return { stopping: worker.stop() }
    })
    await stopped.stopping
    const [row] = await t.sql`select status, attempt_count, max_attempts, locked_by from jobs`
    expect(row).toMatchObject({ status: 'queued', locked_by: null })
    expect(runs).toBe(0)
    expect([
      { attempt_count: 0, max_attempts: 3 },
      { attempt_count: 1, max_attempts: 4 },
    ]).toContainEqual({ attempt_count: row?.attempt_count as number, max_attempts: row?.max_attempts as number })
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('what a handler tells can be stored, and our own names are refused', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await insertMany(t.sql, 'jobs', 1, { stage: `'clip'`, max_attempts: '1' })
    const circular: Record<string, unknown> = { nul: 'a\0b\ud800', big: 2n ** 60n, long: 'x'.repeat(1_000_000) }
    const refused: unknown[] = []
    const worker = createWorker({
      ...options(t.url, place),
      handlers: {
        async clip({ event }) {
          await event('note', circular)
          circular.self = circular
          await event('note', circular)
          for (const name of ['done', 'aborted:shutdown', ''])
            await event(name).catch((error: unknown) => refused.push(error))
        },
      },
    })
    worker.start()
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 1)
    await worker.stop()
    expect(refused).toHaveLength(3)
    expect(await brokenInvariants(t.sql)).toEqual([])
  })
})

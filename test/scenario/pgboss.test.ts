/** Jobs that reach their workers through pg-boss: the real one, on the same database. */
import { describe, expect, test } from 'bun:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from 'postgres'

import type { Dispatcher } from '../../src/dispatch/dispatcher.ts'
import { createPgBossDispatcher, queueName } from '../../src/dispatch/pgboss.ts'
import { silentLog } from '../../src/telemetry/log.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type Program, runProgram } from '../support/program.ts'
import { startProxy } from '../support/proxy.ts'
import { eventTypes, insertJob, readEvents, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'
import { childPid, openPlace, type Place, startUnsupervised, startWorker, TEST_PACE } from '../support/worker.ts'

const FED = { QUEUE_PROVIDER: 'pgboss', HEARTBEAT_SEC: '0.3', DEFAULT_LEASE_SEC: '1', CLIP_SLA_FACTOR: '3' }

const put = (sql: Sql, payload: object = {}, columns = {}): Promise<string> =>
  insertJob(sql, 'jobs', { stage: `'clip'`, payload: `'${JSON.stringify(payload)}'`, ...columns })
const statusOf = async (sql: Sql, id: string): Promise<string> => (await readJob(sql, 'jobs', id)).status

async function openDispatcher(url: string): Promise<Dispatcher & AsyncDisposable> {
  const dispatcher = await createPgBossDispatcher({ url, schema: 'pgboss', log: silentLog, timeoutSec: 1 })
  return { ...dispatcher, [Symbol.asyncDispose]: () => dispatcher.close() }
}

function startReaper(url: string, env: Record<string, string> = {}): Program {
  return runProgram('reaper.ts', {
    ...TEST_PACE,
    ...FED,
    DATABASE_URL: url,
    REAPER_INTERVAL_SEC: '0.5',
    REAPER_TABLES: 'jobs',
    ...env,
  })
}

/** Starts and ends, without what an attempt leaves behind. */
const runs = (place: Place): string[] => place.notes().filter((note) => !note.startsWith('abort'))

async function metric(program: Program, line: RegExp, ready = 'worker ready'): Promise<number> {
  const { http } = await program.said(ready)
  const text = await (await fetch(`${String(http)}/metrics`)).text()
  return Number(
    text
      .split('\n')
      .find((each) => line.test(each))
      ?.split(' ')
      .at(-1) ?? Number.NaN,
  )
}

const waitingMessages = async ({ sql }: TestDatabase): Promise<{ key: string; data: { id: string } }[]> =>
  sql`select singleton_key as key, data from pgboss.job where state = 'created' order by singleton_key`

describe('the dispatcher', () => {
  test('makes its own tables, keeps ids exact, and gives each message once', async () => {
    await using t = await freshDatabase()
    await using dispatcher = await openDispatcher(t.url)
    const ids = ['9007199254740993', `o'brien "x" {1,2}`, '3f0c8f62-6c1b-4b57-9b0a-0a5f4d6a7a11', 'x'.repeat(3000)]
    await dispatcher.publish(
      'jobs',
      ids.map((id) => ({ id, dueAt: null })),
    )
    expect((await dispatcher.fetch('jobs', 10)).toSorted()).toEqual(ids.toSorted())
    expect(await dispatcher.fetch('jobs', 10)).toEqual([])
    expect(await dispatcher.fetch('asr_jobs', 10)).toEqual([])
    expect(await t.sql`select 1 from pgboss.job`).toHaveLength(0)
  })

  test('one waiting message per job and due time; a message for later does not swallow one for now', async () => {
    await using t = await freshDatabase()
    await using dispatcher = await openDispatcher(t.url)
    const later = new Date(Date.now() + 3_600_000)
    for (let n = 0; n < 3; n += 1) await dispatcher.publish('jobs', [{ id: 'a', dueAt: later }])
    expect(await waitingMessages(t)).toEqual([{ key: 'a', data: { id: 'a' } }])
    expect(await dispatcher.fetch('jobs', 10)).toEqual([])
    for (let n = 0; n < 3; n += 1) await dispatcher.publish('jobs', [{ id: 'a', dueAt: null }])
    expect(await dispatcher.fetch('jobs', 10)).toEqual(['a'])
    expect(await waitingMessages(t)).toEqual([{ key: 'a', data: { id: 'a' } }])
  })

  test('names of queues: any table has one, and no two share it', () => {
    expect(queueName('media.jobs')).toBe('leasehold/media.jobs')
    expect(queueName('Render Jobs')).toMatch(/^leasehold\/Render-Jobs-[0-9a-f]{8}$/)
    expect(queueName('Render Jobs')).not.toBe(queueName('Render-Jobs'))
    expect(queueName('задачи')).not.toBe(queueName('работы'))
  })

  test('a message that names no job is dropped', async () => {
    await using t = await freshDatabase()
    await using dispatcher = await openDispatcher(t.url)
    await dispatcher.publish('jobs', [{ id: 'real', dueAt: null }])
    for (const data of [{}, { id: null }, { id: { a: 1 } }, { id: 12 }])
      await t.sql`insert into pgboss.job (name, data, policy) values ('leasehold/jobs', ${t.sql.json(data)}, 'standard')`
    expect((await dispatcher.fetch('jobs', 10)).toSorted()).toEqual(['12', 'real'])
    expect(await dispatcher.fetch('jobs', 10)).toEqual([])
  })

  test('tables of another version are not upgraded: the error says what to do', async () => {
    await using t = await freshDatabase()
    {
      await using first = await openDispatcher(t.url)
      await first.fetch('jobs', 1)
    }
    await t.sql`update pgboss.version set version = version - 1`
    await using second = await openDispatcher(t.url)
    await expect(second.fetch('jobs', 1)).rejects.toThrow(/another version.*PGBOSS_SCHEMA/)
  })

  test('killed connections and a silent network: the next call goes through', async () => {
    await using t = await freshDatabase()
    await using proxy = await startProxy(t.url)
    await using dispatcher = await openDispatcher(proxy.url)
    await dispatcher.publish('jobs', [{ id: 'a', dueAt: null }])
    for (let n = 0; n < 5; n += 1) {
      await t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold pg-boss'`
      await eventually(() =>
        dispatcher.publish('jobs', [{ id: `b${n}`, dueAt: null }]).then(
          () => true,
          () => false,
        ),
      )
    }
    proxy.blackhole()
    await expect(dispatcher.publish('jobs', [{ id: 'c', dueAt: null }])).rejects.toThrow()
    proxy.heal()
    await eventually(() =>
      dispatcher.publish('jobs', [{ id: 'c', dueAt: null }]).then(
        () => true,
        () => false,
      ),
    )
    expect((await dispatcher.fetch('jobs', 10)).toSorted()).toEqual(['a', 'b0', 'b1', 'b2', 'b3', 'b4', 'c'])
  })
})

describe('a fed worker', () => {
  test('killed mid-job: the job is requeued, published at its due time, and run again once', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    const leases = createLeases({ db: t.db, table: 'jobs', dispatch: dispatcher })
    await using reaper = startReaper(t.url)
    await reaper.said('reaper started')
    await using first = startUnsupervised(t.url, place, 'first', FED)
    await first.said('worker ready')
    const queued = await leases.enqueueJob({ stage: 'clip', payload: { ms: 1500 } })
    const id = queued.ok ? queued.value : ''
    await eventually(() => place.notes().includes(`start ${id} 1`))
    first.process.kill('SIGKILL')
    await eventually(async () => (await statusOf(t.sql, id)) === 'queued', { what: 'the requeue' })
    await using second = startWorker(t.url, place, FED)
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { what: `the re-run:\n${second.output()}` })
    expect(runs(place)).toEqual([`start ${id} 1`, `start ${id} 2`, `end ${id} 2`])
    expect(await metric(reaper, /^dispatch_published_total\{table="jobs"\}/, 'reaper started')).toBe(1)
    expect(await brokenInvariants(t.sql)).toEqual([])
    expect(await waitingMessages(t)).toEqual([])
  })

  test('a failed attempt, a crash under the supervisor and a shutdown each publish the job again', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    const leases = createLeases({ db: t.db, table: 'jobs', dispatch: dispatcher })
    const put1 = async (payload: object): Promise<string> => {
      const answer = await leases.enqueueJob({ stage: 'clip', payload })
      return answer.ok ? answer.value : ''
    }
    await using worker = startWorker(t.url, place, {
      ...FED,
      DEFAULT_LEASE_SEC: '60',
      CLIP_SLA_FACTOR: '300',
      SHUTDOWN_TIMEOUT_SEC: '0',
    })
    const flaky = await put1({ fail: 'transient' })
    await eventually(async () => (await statusOf(t.sql, flaky)) === 'failed', { what: 'three attempts' })
    expect(await readJob(t.sql, 'jobs', flaky)).toMatchObject({ attempt_count: 3 })
    const crashing = await put1({ crashes: 1 })
    await eventually(async () => (await statusOf(t.sql, crashing)) === 'done', { what: 'the crashed job' })
    const long = await put1({ ms: 60_000 })
    await eventually(() => place.notes().includes(`start ${long} 1`))
    worker.process.kill('SIGTERM')
    await worker.ended
    expect(await statusOf(t.sql, long)).toBe('queued')
    expect(await dispatcher.fetch('jobs', 10)).toEqual([long])
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('a lost message is published again by the reaper, and told', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using worker = startWorker(t.url, place, FED)
    await worker.said('worker ready')
    const id = await put(t.sql)
    await sleep(1000)
    expect(await statusOf(t.sql, id)).toBe('queued')
    await using reaper = startReaper(t.url, { QUEUED_ORPHAN_SEC: '1' })
    await eventually(async () => (await statusOf(t.sql, id)) === 'done', { what: `a run:\n${reaper.output()}` })
    expect(await eventTypes(t.sql, id)).toEqual(['requeued:undispatched', 'processing', 'source:ready', 'done'])
    const [offered] = await readEvents(t.sql, id)
    expect(offered?.details).toMatchObject({ reason: 'undispatched' })
    expect(
      await metric(reaper, /^reaper_undispatched_total\{table="jobs",outcome="republished"\}/, 'reaper started'),
    ).toBe(1)
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('S14: delivered twice, it runs once; the second is a counted duplicate', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    await using worker = startWorker(t.url, place, { ...FED, MAX_CONCURRENCY: '4' })
    await worker.said('worker ready')
    const id = await put(t.sql, { ms: 1500 })
    await dispatcher.publish('jobs', [{ id, dueAt: null }])
    await eventually(() => place.notes().includes(`start ${id} 1`))
    await dispatcher.publish('jobs', [{ id, dueAt: null }])
    await eventually(async () => (await statusOf(t.sql, id)) === 'done')
    expect(runs(place)).toEqual([`start ${id} 1`, `end ${id} 1`])
    expect(await metric(worker, /^worker_duplicate_skips_total/)).toBe(1)
    expect(await metric(worker, /^worker_dispatch_skips_total\{table="jobs",code="NOT_QUEUED"\}/)).toBe(1)
  })

  test('done, unknown, malformed, used up, not due: counted skips; the one that is not due runs when it is', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    const [done, usedUp, early, good] = [
      await put(t.sql, {}, { status: `'done'` }),
      await put(t.sql, {}, { attempt_count: '3' }),
      await put(t.sql, {}, { next_earliest_run_at: `now() + interval '3 seconds'` }),
      await put(t.sql),
    ]
    const ids = [done, usedUp, early, 'no uuid at all', '00000000-0000-4000-8000-000000000000', good]
    await dispatcher.publish(
      'jobs',
      ids.map((id) => ({ id, dueAt: null })),
    )
    await using worker = startWorker(t.url, place, { ...FED, MAX_CONCURRENCY: '8' })
    await eventually(async () => (await statusOf(t.sql, good)) === 'done', { what: worker.output() })
    await eventually(async () => (await statusOf(t.sql, early)) === 'done', { what: 'the job that was not due' })
    const skips = async (code: string): Promise<number> =>
      metric(worker, new RegExp(String.raw`^worker_dispatch_skips_total\{table="jobs",code="${code}"\}`))
    expect(await skips('NOT_FOUND')).toBe(2)
    expect(await skips('NOT_QUEUED')).toBe(1)
    expect(await skips('NOT_DUE')).toBe(1)
    expect(await skips('NO_ATTEMPTS_LEFT')).toBe(1)
    expect(runs(place)).toHaveLength(4)
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('a job whose stage has no slot here is offered again and not lost', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    const ids = [await put(t.sql, { ms: 500 }), await put(t.sql, { ms: 500 })]
    await dispatcher.publish(
      'jobs',
      ids.map((id) => ({ id, dueAt: null })),
    )
    await using worker = startWorker(t.url, place, { ...FED, MAX_CONCURRENCY: '4', CLIP_MAX_CONCURRENCY: '1' })
    for (const id of ids) await eventually(async () => (await statusOf(t.sql, id)) === 'done', { what: id })
    expect(await metric(worker, /^worker_dispatch_skips_total\{table="jobs",code="NOT_HERE"\}/)).toBeGreaterThan(0)
    const [, second] = runs(place)
    expect(second).toMatch(/^end /)
  })

  test('its connections and its worker die under load; every job is done once', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    await using dispatcher = await openDispatcher(t.url)
    const leases = createLeases({ db: t.db, table: 'jobs', dispatch: dispatcher })
    await using reaper = startReaper(t.url, { QUEUED_ORPHAN_SEC: '2' })
    await reaper.said('reaper started')
    await using worker = startWorker(t.url, place, { ...FED, MAX_CONCURRENCY: '4' })
    for (let n = 0; n < 40; n += 1) {
      expect((await leases.enqueueJob({ stage: 'clip', payload: { ms: 100 } })).ok).toBe(true)
      if (n % 8 === 4)
        await t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name in ('leasehold worker', 'leasehold reaper', 'leasehold pg-boss')`
      if (n === 20) process.kill(await childPid(worker), 'SIGKILL')
    }
    await eventually(async () => (await t.sql`select 1 from jobs where status = 'done'`).length >= 40, {
      what: 'all jobs done',
      withinMs: 40_000,
    })
    const [count] = await t.sql<{ done: number }[]>`select count(*)::int as done from jobs where status = 'done'`
    expect(count?.done).toBe(40)
    expect(await brokenInvariants(t.sql)).toEqual([])
  }, 60_000)
})

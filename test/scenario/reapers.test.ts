/** Whole stories of the reaper: two at once and one killed, waking in time, outages, and a database that loses its backends. */
import { describe, expect, test } from 'bun:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { type Database, openDatabase } from '../../src/db/client.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { startCluster } from '../support/cluster.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { startProxy } from '../support/proxy.ts'
import { runProgram } from '../support/program.ts'
import { countByStatus, EXPIRED, insertJob, insertMany, readEvents, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const QUICK = { heartbeatSec: 0.2, leaseTimeoutSec: 1 }
const shortLeases = (leaseSec: number): ReturnType<typeof stagePolicy> =>
  stagePolicy({ heartbeatSec: leaseSec / 3, factors: { clip: 3 }, defaultLeaseSec: leaseSec, maxRuntimeSec: 21_600 })

test('R1: two reapers over 20,000 expired rows, one of them killed again and again: every row moved once', async () => {
  await using t = await freshDatabase()
  await insertMany(t.sql, 'jobs', 20_000, EXPIRED)
  const env = {
    DATABASE_URL: t.url,
    HEARTBEAT_SEC: '0.2',
    REAPER_BATCH_SIZE: '200',
    REAPER_INTERVAL_SEC: '0.2',
    LOG_LEVEL: 'warn',
  }
  await using steady = runProgram('reaper.ts', env)
  let kills = 0
  while ((await countByStatus(t.sql, 'jobs')).processing) {
    await using victim = runProgram('reaper.ts', env)
    await sleep(100 + Math.random() * 250)
    victim.process.kill('SIGKILL')
    await victim.ended
    kills += 1
  }
  expect(kills).toBeGreaterThan(1)
  expect(await countByStatus(t.sql, 'jobs')).toEqual({ queued: 20_000 })
  const [events] = await t.sql`
    select count(*) filter (where data ->> 'type' = 'reaper:requeued')::int as audit,
      count(*) filter (where data ->> 'type' = 'requeued:stale')::int as marks, count(distinct job_id)::int as jobs from job_events`
  expect(events).toEqual({ audit: 20_000, marks: 20_000, jobs: 20_000 })
  const [moves] = await t.sql`select count(*)::int as count from witness where source = 'jobs' and op = 'UPDATE'`
  expect(moves).toEqual({ count: 20_000 })
  expect(await brokenInvariants(t.sql)).toEqual([])
  steady.process.kill('SIGTERM')
  expect((await steady.ended).code).toBe(0)
}, 120_000)

describe('the wake', () => {
  test('with an interval of 60 s and leases of 3 s a lost job is requeued about when its lease ends', async () => {
    await using t = await freshDatabase()
    const stages = shortLeases(3)
    const leases = createLeases({ db: t.db, table: 'jobs', stages })
    const reaper = createReaper({ db: t.open(), tables: ['jobs'], stages, ...QUICK, intervalSec: 60 })
    reaper.start()
    const id = await insertJob(t.sql, 'jobs', { stage: `'clip'` })
    const claimed = await leases.claimJob(id, 'doomed')
    expect(claimed).toMatchObject({ ok: true, value: { lease: { leaseSec: 3 } } })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { withinMs: 40_000 })
    await reaper.stop()
    const [late] = await t.sql<{ sec: number }[]>`
      select extract(epoch from at - (old ->> 'lease_expires_at')::timestamptz)::float8 as sec
      from witness where source = 'jobs' and new ->> 'status' = 'queued' and op = 'UPDATE'`
    expect(late?.sec).toBeGreaterThan(0)
    // Far below the interval, which alone would have left it there for most of a minute.
    expect(late?.sec).toBeLessThan(20)
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('an idle reaper at default settings makes one query per table and wake, and sleeps', async () => {
    await using t = await freshDatabase()
    let queries = 0
    const counting: Database = { ...t.db, query: (...args) => ((queries += 1), t.db.query(...args)) }
    const reaper = createReaper({ db: counting, tables: ['jobs', 'asr_jobs'] })
    reaper.start()
    await eventually(() => reaper.health.obstacles().length === 0)
    const afterFirst = queries
    await sleep(1500)
    expect(queries).toBe(afterFirst)
    await reaper.stop()
    // Three catalog reads per table at the first use (jobs, events, and what may stand beside them), then one look each.
    expect(afterFirst).toBe(2 * 4)
  })

  test('its look reads the partial indexes, not the table, however many finished rows there are', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 50_000, { status: `'done'` })
    await t.sql`analyze jobs`
    const reaper = createReaper({ db: t.db, tables: ['jobs'], ...QUICK, intervalSec: 0.2 })
    await t.sql`select pg_stat_reset()`
    reaper.start()
    await sleep(1500)
    await reaper.stop()
    await t.sql`select pg_stat_force_next_flush()`
    const [stats] = await eventually(async () => {
      const rows = await t.sql<
        { seq: number; read: number; idx: number }[]
      >`select seq_scan::int as seq, seq_tup_read::int as read, idx_scan::int as idx from pg_stat_user_tables where relname = 'jobs'`
      return (rows[0]?.idx ?? 0) > 3 ? rows : null
    })
    expect(stats?.read).toBe(0)
  })

  test('a row that somebody holds locked costs a look per second, not a busy loop (D8)', async () => {
    await using t = await freshDatabase()
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    let queries = 0
    const counting: Database = { ...t.db, query: (...args) => ((queries += 1), t.db.query(...args)) }
    const reaper = createReaper({ db: counting, tables: ['jobs'], ...QUICK })
    await t.sql.begin(async (host) => {
      await host`select 1 from jobs where id = ${id} for update`
      reaper.start()
      await sleep(2500)
      expect(queries).toBeLessThan(25)
    })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { withinMs: 4000 })
    await reaper.stop()
  })
})

test('a listener of a pass that throws does not end the loop', async () => {
  await using t = await freshDatabase()
  let passes = 0
  const reaper = createReaper({
    db: t.open(),
    tables: ['jobs'],
    intervalSec: 0.2,
    ...QUICK,
    onPass() {
      passes += 1
      throw new Error('nobody listens')
    },
  })
  reaper.start()
  await eventually(() => passes >= 3)
  const id = await insertJob(t.sql, 'jobs', EXPIRED)
  await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { withinMs: 30_000 })
  await reaper.stop()
}, 60_000)

describe('several reapers', () => {
  test('Q16: a stranger who sits on the scan lock delays the work, but does not stop it', async () => {
    await using t = await freshDatabase()
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    const reaper = createReaper({ db: t.db, tables: ['jobs'], ...QUICK })
    await t.sql.begin(async (stranger) => {
      await stranger`select pg_advisory_xact_lock(hashtextextended('leasehold reaper jobs', 0))`
      reaper.start()
      await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { withinMs: 20_000 })
    })
    await reaper.stop()
  }, 30_000)
})

describe('outages', () => {
  test('a table that is locked is no outage: the dead jobs of the other one are reaped', async () => {
    await using t = await freshDatabase()
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    const reaper = createReaper({
      db: t.open({ queryTimeoutSec: 0.6 }),
      tables: ['asr_jobs', 'jobs'],
      ...QUICK,
      intervalSec: 1,
    })
    await t.sql.begin(async (host) => {
      await host`lock table asr_jobs in access exclusive mode`
      reaper.start()
      await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { withinMs: 10_000 })
    })
    await eventually(() => reaper.health.obstacles().length === 0)
    await reaper.stop()
  })

  test('a read-only database is an obstacle, and passes when it is over (D11)', async () => {
    await using t = await freshDatabase()
    const name = new URL(t.url).pathname.slice(1)
    await t.sql.unsafe(`alter database "${name}" set default_transaction_read_only = on`)
    const db = t.open()
    const reaper = createReaper({ db, tables: ['jobs'], ...QUICK, intervalSec: 0.5 })
    reaper.start()
    await eventually(() => reaper.health.obstacles().join().includes('read-only'))
    await t.sql
      .unsafe(`set default_transaction_read_only = off; alter database "${name}" reset default_transaction_read_only`)
      .simple()
    await t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'leasehold' and datname = ${name}`
    await eventually(() => reaper.health.obstacles().length === 0)
    await reaper.stop()
  })

  test('an outage that begins and ends while the reaper sleeps costs no healthy job', async () => {
    await using t = await freshDatabase()
    await using proxy = await startProxy(t.url)
    const stages = shortLeases(6)
    const workerDb = t.open({ url: proxy.url, queryTimeoutSec: 1 })
    const reaperDb = t.open({ url: proxy.url, queryTimeoutSec: 1 })
    const leases = createLeases({ db: workerDb, table: 'jobs', stages })
    const reaper = createReaper({ db: reaperDb, tables: ['jobs'], stages, heartbeatSec: 2, intervalSec: 60 })
    const claimed = await leases.claimJob(await insertJob(t.sql, 'jobs', { stage: `'clip'` }), 'healthy')
    if (!claimed.ok) throw new Error(claimed.error)
    reaper.start()
    await sleep(500)
    // The network is cut right after the claim; the worker beats as soon as it is back, half a second before the lease ends.
    proxy.blackhole()
    await sleep(5000)
    proxy.heal()
    await sleep(1700)
    expect(await leases.heartbeatJob(claimed.value.lease)).toMatchObject({ ok: true })
    await sleep(500)
    expect(await readJob(t.sql, 'jobs', claimed.value.lease.id)).toMatchObject({
      status: 'processing',
      attempt_count: 1,
    })
    await reaper.stop()
    await Promise.all([workerDb.close(), reaperDb.close()])
  }, 30_000)

  test('after a restart longer than the lease healthy jobs keep their lease, and a dead one is requeued a little later', async () => {
    await using cluster = await startCluster()
    const stages = shortLeases(3)
    const heartbeatSec = 1
    await using closing = new AsyncDisposableStack()
    const open = (): Database => {
      const db = openDatabase({ url: cluster.url, queryTimeoutSec: 2 })
      closing.defer(() => db.close())
      return db
    }
    const metrics = createMetrics({ stages: ['clip'], tables: ['jobs'] })
    const leases = createLeases({ db: open(), table: 'jobs', stages })
    const reaper = createReaper({ db: open(), tables: ['jobs'], stages, heartbeatSec, metrics, intervalSec: 0.5 })

    await insertMany(cluster.sql, 'jobs', 12, { stage: `'clip'` })
    const claimed = await leases.claimNext({ workerId: 'healthy', limit: 11 })
    const doomed = await leases.claimNext({ workerId: 'doomed', limit: 1 })
    if (!claimed.ok || !doomed.ok) throw new Error('nothing claimed')
    const held = claimed.value.map(({ lease }) => lease)
    const beating = new AbortController()
    let isCutOff = false
    const beats = (async (): Promise<void> => {
      while (!beating.signal.aborted) {
        // The workers come back a moment after the reaper does: only the grace keeps their jobs.
        if (!isCutOff) await leases.heartbeatJobs(held)
        await sleep(250, undefined, { signal: beating.signal }).catch(() => undefined)
      }
    })()
    reaper.start()
    await sleep(1000)
    isCutOff = true
    await cluster.stop()
    await sleep(5000)
    await cluster.start()
    await sleep(600)
    isCutOff = false

    const lost = doomed.value[0]?.lease.id ?? ''
    await eventually(async () => (await readJob(cluster.sql, 'jobs', lost)).status === 'queued', { withinMs: 20_000 })
    await sleep(3000)
    const [requeued] = await cluster.sql`select count(*)::int as count from jobs where status = 'queued'`
    expect(requeued).toEqual({ count: 1 })
    const [healthy] =
      await cluster.sql`select count(*)::int as count, max(attempt_count)::int as attempts from jobs where status = 'processing'`
    expect(healthy).toEqual({ count: 11, attempts: 1 })
    expect((await readEvents(cluster.sql, lost)).map((event) => event.type)).toEqual([
      'processing',
      'reaper:requeued',
      'requeued:stale',
    ])
    beating.abort()
    await beats
    await reaper.stop()
    expect(await brokenInvariants(cluster.sql)).toEqual([])
  }, 60_000)

  test('when most leases run out at once it says so loudly', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 12, EXPIRED)
    const metrics = createMetrics({ stages: [], tables: ['jobs'] })
    const reaper = createReaper({ db: t.db, tables: ['jobs'], metrics, ...QUICK })
    reaper.start()
    await eventually(async () => (await metrics.text()).includes('reaper_mass_expiries_total{table="jobs"} 1'))
    await reaper.stop()
  })
})

/** The client when things break: dead backends, stopped backends, silent networks, lost answers. */
import { afterAll, beforeAll, expect, test } from 'bun:test'

import { openDatabase } from '../../src/db/client.ts'
import { isLostSocketWrite } from '../../src/db/crash-filter.ts'
import { DeadlineError, describeError, isConnectionError, isTransient } from '../../src/db/errors.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { startProxy } from '../support/proxy.ts'
import { eventTypes, EXPIRED, insertJob, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

let t: TestDatabase
beforeAll(async () => {
  t = await freshDatabase()
})
afterAll(async () => {
  expect(await brokenInvariants(t.sql)).toEqual([])
  await t[Symbol.asyncDispose]()
})

test('N2: a stopped backend costs one deadline; the next query has a fresh client', async () => {
  const replaced: string[] = []
  const db = t.open({ poolMax: 1, queryTimeoutSec: 0.5, onReplaced: (reason) => replaced.push(reason) })
  const [row] = await db.query((sql) => sql<{ pid: number }[]>`select pg_backend_pid() as pid`)
  const pid = row?.pid ?? 0
  process.kill(pid, 'SIGSTOP')
  try {
    await expect(db.query((sql) => sql`select 1`)).rejects.toThrow(DeadlineError)
    expect(replaced).toEqual(['no answer within 0.5 s'])
    expect(await db.query((sql) => sql`select 1 as one`)).toEqual([{ one: 1 }] as never)
  } finally {
    process.kill(pid, 'SIGCONT')
  }
})

test('a statement that misses its deadline is stopped on the server too', async () => {
  const db = t.open({ poolMax: 1, queryTimeoutSec: 0.3, applicationName: 'sleeper' })
  await expect(db.query((sql) => sql`select pg_sleep(${30})`)).rejects.toThrow(DeadlineError)
  for (let tries = 0; ; tries += 1) {
    const [busy] =
      await t.sql`select count(*)::int as count from pg_stat_activity where application_name = 'sleeper' and state = 'active'`
    if (busy?.count === 0) break
    expect(tries).toBeLessThan(100)
    await Bun.sleep(20)
  }
})

test('a killed backend is an error of one query, not of the client', async () => {
  const db = t.open({ poolMax: 1, queryTimeoutSec: 20 })
  for (let round = 0; round < 20; round += 1) {
    const [row] = await db.query((sql) => sql<{ pid: number }[]>`select pg_backend_pid() as pid`)
    await t.sql`select pg_terminate_backend(${row?.pid ?? 0})`
    const answer = await db.query((sql) => sql`select 1`).catch((error: unknown) => error)
    if (answer instanceof Error) expect(isConnectionError(answer)).toBe(true)
    const next = await db.query((sql) => sql`select 1`).catch(() => db.query((sql) => sql`select 1`))
    expect(next).toHaveLength(1)
  }
})

test('heartbeat and finish survive a connection that died while idle', async () => {
  const db = t.open({ poolMax: 1, applicationName: 'idler' })
  const leases = createLeases({ db, table: 'jobs' })
  const claimed = await leases.claimJob(await insertJob(t.sql, 'jobs'), 'w', 60)
  if (!claimed.ok) throw new Error(claimed.error)
  const kill = (): Promise<unknown> =>
    t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'idler'`
  await kill()
  expect(await leases.heartbeatJob(claimed.value.lease)).toMatchObject({ ok: true })
  await kill()
  expect(await leases.finishJob(claimed.value.lease, true)).toMatchObject({ ok: true, value: { status: 'done' } })
})

test('a database that is away is UNAVAILABLE, never LEASE_LOST', async () => {
  await using proxy = await startProxy(t.url)
  const db = openDatabase({ url: proxy.url, poolMax: 1, queryTimeoutSec: 0.5 })
  const leases = createLeases({ db, table: 'jobs' })
  const claimed = await leases.claimJob(await insertJob(t.sql, 'jobs'), 'w', 60)
  if (!claimed.ok) throw new Error(claimed.error)
  proxy.blackhole()
  expect(await leases.heartbeatJob(claimed.value.lease)).toMatchObject({ ok: false, code: 'UNAVAILABLE' })
  expect(await leases.claimNext({ workerId: 'w', limit: 1 })).toMatchObject({ ok: false, code: 'UNAVAILABLE' })
  proxy.heal()
  expect(await leases.heartbeatJob(claimed.value.lease)).toMatchObject({ ok: true })
  expect(await leases.finishJob(claimed.value.lease, true)).toMatchObject({ ok: true })
  await db.close()
})

test('a finish whose answer was lost is a success when it is said again, with one event', async () => {
  await using proxy = await startProxy(t.url)
  const db = openDatabase({ url: proxy.url, poolMax: 1, queryTimeoutSec: 0.5, prepare: true })
  const leases = createLeases({ db, table: 'jobs' })
  // The client asks for the types of the parameters first; a warm statement goes out in one piece.
  const warm = await leases.claimJob(await insertJob(t.sql, 'jobs'), 'w', 60)
  const claimed = await leases.claimJob(await insertJob(t.sql, 'jobs'), 'w', 60)
  if (!claimed.ok || !warm.ok) throw new Error('not claimed')
  expect((await leases.finishJob(warm.value.lease, true)).ok).toBe(true)
  proxy.dropReplies()
  expect(await leases.finishJob(claimed.value.lease, true)).toMatchObject({ ok: false, code: 'UNAVAILABLE' })
  expect((await readJob(t.sql, 'jobs', claimed.value.lease.id)).status).toBe('done')
  proxy.heal()
  expect(await leases.finishJob(claimed.value.lease, true)).toMatchObject({ ok: true, value: { status: 'done' } })
  expect(await eventTypes(t.sql, claimed.value.lease.id)).toEqual(['processing', 'done'])
  await db.close()
})

test('N8: a reap whose answer was lost is not told twice', async () => {
  await using proxy = await startProxy(t.url)
  const db = openDatabase({ url: proxy.url, poolMax: 1, queryTimeoutSec: 0.5, prepare: true })
  const reaper = createReaper({ db, tables: ['jobs'] })
  await insertJob(t.sql, 'jobs', EXPIRED)
  await reaper.reap('jobs')
  const id = await insertJob(t.sql, 'jobs', EXPIRED)
  proxy.dropReplies()
  await expect(reaper.reap('jobs')).rejects.toThrow()
  proxy.heal()
  await reaper.reap('jobs')
  expect((await readJob(t.sql, 'jobs', id)).status).toBe('queued')
  expect(await eventTypes(t.sql, id)).toEqual(['reaper:requeued', 'requeued:stale'])
  await db.close()
})

test('the filter lets exactly the one known error of the driver pass', () => {
  const known = new TypeError("null is not an object (evaluating 'socket.write')")
  known.stack = `TypeError: x\n    at nextWrite (/app/node_modules/postgres/src/connection.js:255:15)`
  expect(isLostSocketWrite(known)).toBe(true)
  expect(isLostSocketWrite(new TypeError("null is not an object (evaluating 'socket.write')"))).toBe(false)
  expect(isLostSocketWrite(new Error('socket.write'))).toBe(false)
  expect(isLostSocketWrite(undefined)).toBe(false)
})

test('errors are sorted by what can be done about them', () => {
  expect(isTransient({ code: '40P01' })).toBe(true)
  expect(isTransient({ code: '53300' })).toBe(true)
  expect(isTransient({ code: '25006' })).toBe(true)
  expect(isTransient({ code: '42P01' })).toBe(false)
  expect(isConnectionError({ code: 'ECONNREFUSED' })).toBe(true)
  expect(describeError({ code: '', message: 'x' })).not.toBe('')
})

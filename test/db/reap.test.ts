/** One pass of the reaper over real tables of every shape: what is moved, what is left alone, and what is told. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test'

import { createReaper, type Reaper } from '../../src/reaper/loop.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { eventTypes, EXPIRED, HELD, insertJob, insertMany, readEvents, readJob } from '../support/rows.ts'
import { type ShapedDatabase, shapedDatabase, SHAPES } from '../support/shapes.ts'
import { brokenInvariants } from '../support/witness.ts'

describe.each(SHAPES)('reap on $title', (shape) => {
  let t: ShapedDatabase
  let reaper: Reaper
  const metrics = createMetrics({ stages: ['clip', 'asr', 'burnin'], tables: [shape.table] })
  const put = (columns = {}): Promise<string> => insertJob(t.sql, t.quoted, columns)
  const read = (id: string): ReturnType<typeof readJob> => readJob(t.sql, t.quoted, id)

  beforeAll(async () => {
    t = await shapedDatabase(shape)
    reaper = createReaper({ db: t.db, tables: [t.profile], metrics })
  })
  beforeEach(async () => {
    // What one test leaves running would be moved by the next one's pass.
    await reaper.reap(shape.table)
  })
  afterAll(async () => {
    expect(await brokenInvariants(t.sql)).toEqual([])
    await t[Symbol.asyncDispose]()
  })

  test('requeues a job whose lease has lapsed, clears the lock, sets its due time and tells it twice', async () => {
    const id = await put({ ...EXPIRED, stage: `'clip'`, fail_code: 'null' })
    const before = await value(`reaper_requeues_total{table="${shape.table}",stage="clip"}`)
    expect(await reaper.reap(shape.table)).toEqual({ requeuedIds: [id], failedIds: [] })

    const row = await read(id)
    expect(row).toMatchObject({ status: 'queued', locked_by: null, lease_expires_at: null, attempt_count: 1 })
    expect(row.last_heartbeat_at).toBeInstanceOf(Date)
    const [due] = await t.sql.unsafe<{ sec: number }[]>(
      `select extract(epoch from next_earliest_run_at - now())::float8 as sec from ${t.quoted} where id::text = $1`,
      [id],
    )
    expect(due?.sec).toBeGreaterThan(28)
    expect(due?.sec).toBeLessThanOrEqual(33)

    const events = await readEvents(t.sql, id)
    expect(events.map((event) => event.type)).toEqual(['reaper:requeued', 'requeued:stale'])
    expect(events[0]).toMatchObject({
      table: shape.table,
      details: { reason: 'lease_expired', attempt: 1, holder: 'dead-worker', locked_by: 'dead-worker' },
    })
    expect(Math.abs(Date.parse(events[0]?.at ?? '') - Date.now())).toBeLessThan(60_000)
    expect(await value(`reaper_requeues_total{table="${shape.table}",stage="clip"}`)).toBe(before + 1)
  })

  test('fails a job that has used up its attempts', async () => {
    const id = await put({ ...EXPIRED, attempt_count: '3', stage: `'asr'` })
    const before = await value(`reaper_failures_total{table="${shape.table}",stage="asr"}`)
    expect(await reaper.reap(shape.table)).toEqual({ requeuedIds: [], failedIds: [id] })
    expect(await read(id)).toMatchObject({
      status: 'failed',
      fail_code: 'timeout',
      fail_reason: 'lease_expired',
      locked_by: null,
      lease_expires_at: null,
      attempt_count: 3,
    })
    expect(await eventTypes(t.sql, id)).toEqual(['reaper:failed(timeout)'])
    expect(await value(`reaper_failures_total{table="${shape.table}",stage="asr"}`)).toBe(before + 1)
  })

  test('leaves alone a live lease, a fresh heartbeat without a lease, and a fresh start without either', async () => {
    const live = await put({ ...HELD, processing_started_at: `now() - interval '5 hours'` })
    const beating = await put({
      ...HELD,
      lease_expires_at: 'null',
      processing_started_at: `now() - interval '5 hours'`,
    })
    const fresh = await put({
      ...HELD,
      lease_expires_at: 'null',
      last_heartbeat_at: 'null',
      processing_started_at: `now() - interval '50 minutes'`,
    })
    expect(await reaper.reap(shape.table)).toEqual({ requeuedIds: [], failedIds: [] })
    for (const id of [live, beating, fresh]) expect((await read(id)).status).toBe('processing')
    await t.sql.begin((host) =>
      host
        .unsafe(
          `alter table ${t.quoted} disable trigger user; delete from ${t.quoted} where status = 'processing'; alter table ${t.quoted} enable trigger user`,
        )
        .simple(),
    )
  })

  test('a second pass right after a first changes nothing', async () => {
    await put(EXPIRED)
    await reaper.reap(shape.table)
    const [before] = await t.sql`select max(seq) from witness`
    expect(await reaper.reap(shape.table)).toEqual({ requeuedIds: [], failedIds: [] })
    expect((await t.sql`select max(seq) from witness`)[0]).toEqual(before)
  })

  test('rows without a lease are taken by their own rule, and the rule is told', async () => {
    const stale = await put({
      ...EXPIRED,
      lease_expires_at: 'null',
      last_heartbeat_at: `now() - interval '31 seconds'`,
    })
    const silent = await put({
      ...EXPIRED,
      lease_expires_at: 'null',
      last_heartbeat_at: 'null',
      processing_started_at: `now() - interval '61 minutes'`,
      attempt_count: '3',
    })
    const endless = await put({ ...HELD, processing_started_at: `now() - interval '7 hours'`, attempt_count: '3' })
    const expected = await put({
      ...HELD,
      stage: `'clip'`,
      expected_duration_ms: '120000',
      processing_started_at: `now() - interval '13 minutes'`,
    })
    const within = await put({
      ...HELD,
      stage: `'clip'`,
      expected_duration_ms: '600000',
      processing_started_at: `now() - interval '50 minutes'`,
    })
    await reaper.reap(shape.table)
    expect((await readEvents(t.sql, stale))[0]?.details.reason).toBe('heartbeat_stale')
    expect(await read(silent)).toMatchObject({ status: 'failed', fail_code: 'timeout', fail_reason: 'no_heartbeat' })
    expect(await read(endless)).toMatchObject({ status: 'failed', fail_reason: 'run_deadline' })
    expect((await readEvents(t.sql, expected))[0]?.details.reason).toBe('run_deadline')
    expect((await read(within)).status).toBe('processing')
  })

  test('a pause grows with the attempt and is spread upwards', async () => {
    await insertMany(t.sql, t.quoted, 100, { ...EXPIRED, attempt_count: '2', stage: `'spread'` })
    await reaper.reap(shape.table)
    const [wait] = await t.sql.unsafe<{ min: number; max: number; spread: number }[]>(
      `select min(sec)::float8, max(sec)::float8, (max(sec) - min(sec))::float8 as spread from (select extract(epoch from next_earliest_run_at - now()) as sec from ${t.quoted} where stage = 'spread') s`,
    )
    expect(wait?.min).toBeGreaterThan(117)
    expect(wait?.max).toBeLessThanOrEqual(132)
    expect(wait?.spread).toBeGreaterThan(6)
  })

  test('a dry run names the rows and the rule, and writes nothing', async () => {
    const id = await put(EXPIRED)
    const [before] = await t.sql`select max(seq) from witness`
    expect(await reaper.preview(shape.table)).toMatchObject([
      { id, outcome: 'requeued', rule: 'lease_expired', holder: 'dead-worker', attempt: 1 },
    ])
    expect((await t.sql`select max(seq) from witness`)[0]).toEqual(before)
    expect((await read(id)).status).toBe('processing')
  })

  test('D8: a row that somebody else has locked is left, the others are moved', async () => {
    const [locked, free] = [await put({ ...EXPIRED, lease_expires_at: `now() - interval '1 day'` }), await put(EXPIRED)]
    await t.sql.begin(async (host) => {
      await host.unsafe(`select 1 from ${t.quoted} where id::text = $1 for update`, [locked])
      expect((await reaper.reap(shape.table)).requeuedIds).toEqual([free])
    })
    expect((await reaper.reap(shape.table)).requeuedIds).toEqual([locked])
  })

  test('a host transaction with an uncommitted event for the job does not keep it from being reaped', async () => {
    const id = await put(EXPIRED)
    const events = shape.events
      .split('.')
      .map((part) => `"${part}"`)
      .join('.')
    await t.sql
      .begin(async (host) => {
        await host.unsafe(`insert into ${events} (job_id, data) select id, '{}' from ${t.quoted} where id::text = $1`, [
          id,
        ])
        expect((await reaper.reap(shape.table)).requeuedIds).toEqual([id])
        throw new Error('roll back')
      })
      .catch(() => undefined)
  })

  test('R7: when the event cannot be written, the row does not move either', async () => {
    const id = await put(EXPIRED)
    const events = shape.events
      .split('.')
      .map((part) => `"${part}"`)
      .join('.')
    await t.sql.unsafe(
      `create function trip() returns trigger language plpgsql as $$ begin raise exception 'tripped'; end $$`,
    )
    await t.sql.unsafe(`create trigger trip before insert on ${events} for each row execute function trip()`)
    const stuck = createReaper({ db: t.db, tables: [t.profile], intervalSec: 0.2 })
    expect(await stuck.reap(shape.table)).toEqual({ requeuedIds: [], failedIds: [] })
    expect((await read(id)).status).toBe('processing')
    await t.sql.unsafe(`drop function trip cascade`)
    expect((await reaper.reap(shape.table)).requeuedIds).toEqual([id])
  })

  test('a row that breaks its statement is set aside and named; the rest goes on', async () => {
    await insertMany(t.sql, t.quoted, 60, EXPIRED)
    const bad = await put({ ...EXPIRED, stage: `'poison'` })
    await t.sql.unsafe(
      `create function refuse() returns trigger language plpgsql as $$ begin if new.stage = 'poison' then raise exception 'no way'; end if; return new; end $$`,
    )
    await t.sql.unsafe(`create trigger refuse before update on ${t.quoted} for each row execute function refuse()`)
    const told: string[] = []
    const log = {
      debug() {},
      info() {},
      warn() {},
      error: (facts: { jobId?: string }) => void told.push(facts.jobId ?? ''),
    }
    const careful = createReaper({ db: t.db, tables: [t.profile], log: log as never })
    const { requeuedIds } = await careful.reap(shape.table)
    expect(requeuedIds).toHaveLength(60)
    expect(told).toEqual([bad])
    await t.sql.unsafe('drop function refuse cascade')
    expect((await reaper.reap(shape.table)).requeuedIds).toEqual([bad])
  })

  test('many rows that break do not hold up the others, wherever they stand', async () => {
    await insertMany(t.sql, t.quoted, 25, {
      ...EXPIRED,
      stage: `'poison'`,
      lease_expires_at: `now() - interval '1 day'`,
    })
    await insertMany(t.sql, t.quoted, 100, EXPIRED)
    const raise = `raise exception using errcode = 'JB001', message = 'a code of the team'`
    await t.sql.unsafe(
      `create function refuse() returns trigger language plpgsql as $$ begin if new.stage = 'poison' then ${raise}; end if; return new; end $$`,
    )
    await t.sql.unsafe(`create trigger refuse before update on ${t.quoted} for each row execute function refuse()`)
    const careful = createReaper({ db: t.db, tables: [t.profile] })
    const moved: string[] = []
    for (let pass = 0; pass < 3; pass += 1) {
      const result = await careful.reap(shape.table).catch(() => ({ requeuedIds: [] }))
      moved.push(...result.requeuedIds)
    }
    expect(moved).toHaveLength(100)
    await t.sql.unsafe('drop function refuse cascade')
    expect((await reaper.reap(shape.table)).requeuedIds).toHaveLength(25)
  })

  test('one row that is too slow for its time limit is set aside, the others are moved', async () => {
    const url = new URL(t.url)
    const slow = await put({ ...EXPIRED, stage: `'slow'`, lease_expires_at: `now() - interval '1 day'` })
    await insertMany(t.sql, t.quoted, 6, EXPIRED)
    await t.sql.unsafe(
      `create function dawdle() returns trigger language plpgsql as $$ begin if new.stage = 'slow' then perform pg_sleep(2); end if; return new; end $$`,
    )
    await t.sql.unsafe(`create trigger dawdle before update on ${t.quoted} for each row execute function dawdle()`)
    await t.sql.unsafe(`alter role current_user in database "${url.pathname.slice(1)}" set statement_timeout = '150ms'`)
    const { requeuedIds } = await createReaper({ db: t.open({ poolMax: 1 }), tables: [t.profile] }).reap(shape.table)
    await t.sql.unsafe(`alter role current_user in database "${url.pathname.slice(1)}" reset statement_timeout`)
    await t.sql.unsafe('drop function dawdle cascade')
    expect(requeuedIds).toHaveLength(6)
    expect((await reaper.reap(shape.table)).requeuedIds).toEqual([slow])
  })

  test('R8: what an earlier attempt left behind does not count against an older worker that knows no leases', async () => {
    const id = await put({ ...EXPIRED, last_heartbeat_at: `now() - interval '1 hour'` })
    await reaper.reap(shape.table)
    expect((await read(id)).processing_started_at).toBeNull()
    // The older worker takes it as soon as it is due: only the status changes.
    await t.sql
      .unsafe(
        `alter table ${t.quoted} disable trigger user; update ${t.quoted} set status = 'processing', next_earliest_run_at = now() - interval '1 minute' where id::text = '${id}'; alter table ${t.quoted} enable trigger user`,
      )
      .simple()
    expect(await reaper.reap(shape.table)).toEqual({ requeuedIds: [], failedIds: [] })
    await t.sql
      .unsafe(
        `alter table ${t.quoted} disable trigger user; update ${t.quoted} set status = 'queued' where status = 'processing'; alter table ${t.quoted} enable trigger user`,
      )
      .simple()
  })

  test('D7: a statement that runs into its time limit is halved until it fits', async () => {
    await insertMany(t.sql, t.quoted, 300, EXPIRED)
    await t.sql.unsafe(
      `create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.002); return new; end $$`,
    )
    await t.sql.unsafe(`create trigger dawdle before update on ${t.quoted} for each row execute function dawdle()`)
    const url = new URL(t.url)
    await t.sql.unsafe(`alter role current_user in database "${url.pathname.slice(1)}" set statement_timeout = '150ms'`)
    const hurried = t.open({ poolMax: 1 })
    const { requeuedIds } = await createReaper({ db: hurried, tables: [t.profile] }).reap(shape.table)
    await t.sql.unsafe(`alter role current_user in database "${url.pathname.slice(1)}" reset statement_timeout`)
    await t.sql.unsafe('drop function dawdle cascade')
    expect(requeuedIds).toHaveLength(300)
  })

  test('D6: under serializable isolation passes and claims still go through', async () => {
    const name = new URL(t.url).pathname.slice(1)
    await t.sql.unsafe(`alter database "${name}" set default_transaction_isolation = 'serializable'`)
    await insertMany(t.sql, t.quoted, 50, EXPIRED)
    const [one, two] = [
      createReaper({ db: t.open(), tables: [t.profile], batchSize: 5 }),
      createReaper({ db: t.open(), tables: [t.profile], batchSize: 5 }),
    ]
    const results = await Promise.all([one.reap(shape.table), two.reap(shape.table)])
    await t.sql.unsafe(`alter database "${name}" reset default_transaction_isolation`)
    const rest = await reaper.reap(shape.table)
    expect([...results, rest].flatMap((result) => result.requeuedIds)).toHaveLength(50)
  })

  async function value(series: string): Promise<number> {
    const line = (await metrics.text()).split('\n').find((each) => each.startsWith(`${series} `))
    return Number(line?.split(' ').at(-1))
  }
})

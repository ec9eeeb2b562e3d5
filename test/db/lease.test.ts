/** The lease functions against real tables of every shape: claims, heartbeats, finishes, and what a zombie can do (nothing). */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import { createMetrics } from '../../src/telemetry/metrics.ts'
import { createLeases, type Lease, type Leases } from '../../src/worker/lease.ts'
import { EXPIRED, eventTypes, HELD, insertJob, insertMany, readEvents, readJob } from '../support/rows.ts'
import { type ShapedDatabase, shapedDatabase, SHAPES } from '../support/shapes.ts'
import { brokenInvariants } from '../support/witness.ts'

describe.each(SHAPES)('leases on $title', (shape) => {
  let t: ShapedDatabase
  let leases: Leases
  const metrics = createMetrics({ stages: ['clip'], tables: [shape.table] })
  const put = (columns = {}): Promise<string> => insertJob(t.sql, t.quoted, columns)
  const read = (id: string): ReturnType<typeof readJob> => readJob(t.sql, t.quoted, id)
  const claim = async (id: string, worker = 'worker-a', leaseSec?: number): Promise<Lease> => {
    const claimed = await leases.claimJob(id, worker, leaseSec)
    if (!claimed.ok) throw new Error(claimed.error)
    return claimed.value.lease
  }

  beforeAll(async () => {
    t = await shapedDatabase(shape)
    leases = createLeases({ db: t.db, table: t.profile, metrics })
  })
  afterAll(async () => {
    expect(await brokenInvariants(t.sql)).toEqual([])
    await t[Symbol.asyncDispose]()
  })

  test('a claim sets status, holder, attempt, heartbeat, start and a full lease, and tells it', async () => {
    const id = await put({ stage: `'clip'` })
    const claimed = await leases.claimJob(id, 'worker-a', 60)
    expect(claimed).toMatchObject({
      ok: true,
      value: { lease: { table: shape.table, id, holder: 'worker-a', attempt: 1, leaseSec: 60 } },
    })
    const row = await read(id)
    expect(row).toMatchObject({ status: 'processing', locked_by: 'worker-a', attempt_count: 1 })
    expect(row.lease_expires_at?.getTime()).toBeGreaterThan(Date.now() + 55_000)
    expect(row.processing_started_at).toBeInstanceOf(Date)
    expect(await eventTypes(t.sql, id)).toEqual(['processing'])
    expect(claimed.ok && claimed.value.job.id).toBe(id)
  })

  test('a claim without a length takes the lease of its stage', async () => {
    expect((await claim(await put({ stage: `'asr'` }))).leaseSec).toBe(120)
    expect((await claim(await put({ stage: `'Clip'` }))).leaseSec).toBe(300)
    expect((await claim(await put())).leaseSec).toBe(300)
  })

  test('a lease is never longer than a day, whatever is asked for', async () => {
    const lease = await claim(await put(), 'worker-a', 1e18)
    expect(lease.leaseSec).toBe(86_400)
  })

  test('a claim is refused with the reason', async () => {
    expect(await leases.claimJob(await put({ next_earliest_run_at: `now() + interval '1 hour'` }), 'w')).toMatchObject({
      ok: false,
      code: 'NOT_DUE',
    })
    expect(await leases.claimJob(await put({ next_earliest_run_at: `'infinity'` }), 'w')).toMatchObject({
      ok: false,
      code: 'NOT_DUE',
    })
    expect(await leases.claimJob(await put({ status: `'done'` }), 'w')).toMatchObject({ ok: false, code: 'NOT_QUEUED' })
    expect(await leases.claimJob(await put(EXPIRED), 'w')).toMatchObject({ ok: false, code: 'NOT_QUEUED' })
    expect(await leases.claimJob(await put({ attempt_count: '3' }), 'w')).toMatchObject({
      ok: false,
      code: 'NO_ATTEMPTS_LEFT',
    })
    for (const id of [
      '00000000-0000-4000-8000-000000000000',
      '12345',
      'nonsense',
      '',
      '99999999999999999999999',
      "'; drop table jobs; --",
    ]) {
      expect(await leases.claimJob(id, 'w')).toMatchObject({ ok: false, code: 'NOT_FOUND' })
    }
  })

  test('a live lease is a counted duplicate skip', async () => {
    const before = await counted('worker_duplicate_skips_total')
    expect(await leases.claimJob(await put(HELD), 'w')).toMatchObject({ ok: false, code: 'NOT_QUEUED' })
    expect(await counted('worker_duplicate_skips_total')).toBe(before + 1)
  })

  test('ten claims of one job at once: one gets it', async () => {
    const id = await put()
    const answers = await Promise.all(Array.from({ length: 10 }, (_, n) => leases.claimJob(id, `racer-${n}`)))
    expect(answers.filter((answer) => answer.ok)).toHaveLength(1)
    expect(answers.filter((answer) => !answer.ok).every((answer) => !answer.ok && answer.code === 'NOT_QUEUED')).toBe(
      true,
    )
    expect(await eventTypes(t.sql, id)).toEqual(['processing'])
  })

  test('S3: a job with max_attempts 0, -1 or NULL can be claimed once at least', async () => {
    for (const max of ['0', '-1']) expect((await claim(await put({ max_attempts: max }))).attempt).toBe(1)
    if (shape.table === 'Clips.ClipJobs') expect((await claim(await put({ max_attempts: 'null' }))).attempt).toBe(1)
  })

  test('S10: a queued row that still carries a holder and a lease is claimed and overwritten', async () => {
    const lease = await claim(
      await put({ locked_by: `'ghost'`, lease_expires_at: `now() + interval '1 hour'` }),
      'worker-b',
      30,
    )
    expect((await read(lease.id)).locked_by).toBe('worker-b')
  })

  test('claimNext takes the oldest due first, no more than asked for, and only the stages asked for', async () => {
    const mine = { stage: `'only-here'` }
    const late = await put({ ...mine, next_earliest_run_at: `now() - interval '1 minute'` })
    const early = await put({ ...mine, next_earliest_run_at: `now() - interval '1 hour'` })
    await put({ ...mine, next_earliest_run_at: `now() + interval '1 hour'` })
    const first = await leases.claimNext({ workerId: 'w', limit: 1, stages: ['only-here'] })
    expect(first.ok && first.value.map(({ lease }) => lease.id)).toEqual([early])
    const rest = await leases.claimNext({ workerId: 'w', limit: 10, stages: ['only-here'] })
    expect(rest.ok && rest.value.map(({ lease }) => lease.id)).toEqual([late])
    expect(await leases.claimNext({ workerId: 'w', limit: 10, stages: ['only-here'] })).toEqual({ ok: true, value: [] })
    expect(await leases.claimNext({ workerId: 'w', limit: 0 })).toEqual({ ok: true, value: [] })
  })

  test('D27: twenty claimers at once take exactly what they asked for, each job once', async () => {
    await insertMany(t.sql, t.quoted, 150, { stage: `'crowd'` })
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, n) => leases.claimNext({ workerId: `c-${n}`, limit: 7, stages: ['crowd'] })),
    )
    const taken = answers.map((answer) => (answer.ok ? answer.value.map(({ lease }) => lease.id) : []))
    expect(taken.every((ids) => ids.length <= 7)).toBe(true)
    expect(new Set(taken.flat()).size).toBe(taken.flat().length)
    expect(taken.flat().length).toBe(140)
  })

  test('a heartbeat renews the full lease', async () => {
    const lease = await claim(await put(), 'worker-a', 30)
    await t.sql.unsafe(
      `update ${t.quoted} set lease_expires_at = now() + interval '1 second', last_heartbeat_at = now() - interval '29 seconds' where id::text = $1`,
      [lease.id],
    )
    expect(await leases.heartbeatJob(lease.id, 'worker-a', 60)).toMatchObject({ ok: true })
    const row = await read(lease.id)
    expect(row.lease_expires_at?.getTime()).toBeGreaterThan(Date.now() + 55_000)
    expect(row.last_heartbeat_at?.getTime()).toBeGreaterThan(Date.now() - 5000)
  })

  test('Z10: a late heartbeat before any reap keeps the job', async () => {
    const lease = await claim(await put(), 'worker-a', 30)
    await t.sql.unsafe(`update ${t.quoted} set lease_expires_at = now() - interval '1 minute' where id::text = $1`, [
      lease.id,
    ])
    expect(await leases.heartbeatJob(lease)).toMatchObject({ ok: true })
    expect(await read(lease.id)).toMatchObject({ status: 'processing', attempt_count: 1 })
  })

  test('an old fence changes nothing by heartbeat or finish and is told LEASE_LOST', async () => {
    const stale: [string, (lease: Lease) => Promise<Lease>][] = [
      ['earlier attempt of the same worker', async (lease) => ({ ...lease, attempt: lease.attempt - 1 })],
      ['another worker', async (lease) => ({ ...lease, holder: 'worker-b' })],
      ['after a requeue', (lease) => change(lease, `status = 'queued', locked_by = null, lease_expires_at = null`)],
      ['after a fail', (lease) => change(lease, `status = 'failed', locked_by = null, lease_expires_at = null`)],
    ]
    for (const [title, spoil] of stale) {
      const lease = await claim(await put(), 'worker-a', 60)
      const old = await spoil(lease)
      const before = await read(lease.id)
      expect(await leases.heartbeatJob(old), title).toMatchObject({ ok: false, code: 'LEASE_LOST' })
      expect(await leases.finishJob(old, true), title).toMatchObject({ ok: false, code: 'LEASE_LOST' })
      expect(await leases.finishJob(old, false, { code: 'X' }), title).toMatchObject({ ok: false, code: 'LEASE_LOST' })
      expect(await read(lease.id), title).toEqual(before)
      expect(await eventTypes(t.sql, lease.id), title).not.toContain('done')
    }
  })

  test('a lease nobody here knows is LEASE_LOST, never an unfenced write', async () => {
    const id = await put(HELD)
    expect(await leases.heartbeatJob(id, 'live-worker', 60)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(id, true)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect((await read(id)).status).toBe('processing')
  })

  test('heartbeatJobs renews all at once and says which are lost and which are locked', async () => {
    const [kept, gone, locked] = [await claim(await put()), await claim(await put()), await claim(await put())]
    await t.sql.unsafe(`update ${t.quoted} set attempt_count = 2 where id::text = $1`, [gone.id])
    const beats = await t.sql.begin(async (host) => {
      await host.unsafe(`select 1 from ${t.quoted} where id::text = $1 for update`, [locked.id])
      return leases.heartbeatJobs([kept, gone, locked])
    })
    expect(beats).toMatchObject({
      ok: true,
      value: { renewed: [{ id: kept.id }], lost: [{ id: gone.id }], busy: [{ id: locked.id }] },
    })
    await t.sql.unsafe(`update ${t.quoted} set attempt_count = 1 where id::text = $1`, [gone.id])
    await t.sql`delete from witness where source <> 'job_events' and (old ->> 'attempt_count') is distinct from (new ->> 'attempt_count') and old ->> 'status' = new ->> 'status'`
  })

  test('Z8: of two attempts of one process only the newer one is renewed', async () => {
    const id = await put()
    const old = await claim(id, 'twice')
    expect((await leases.finishJob(old, false, { code: 'NETWORK' })).ok).toBe(true)
    await t.sql.unsafe(
      `update ${t.quoted} set next_earliest_run_at = now() - interval '1 second' where id::text = $1`,
      [id],
    )
    const fresh = await claim(id, 'twice')
    expect(await leases.heartbeatJobs([old, fresh])).toMatchObject({
      ok: true,
      value: { renewed: [{ attempt: 2 }], lost: [{ attempt: 1 }] },
    })
    // Said again, the old attempt's finish tells how it ended then, not what the row is now.
    expect((await leases.finishJob(fresh, true)).ok).toBe(true)
    expect(await leases.finishJob(old, false, { code: 'NETWORK' })).toMatchObject({
      ok: true,
      value: { status: 'queued' },
    })
  })

  test('D6: four workers under serializable isolation are never turned away', async () => {
    const name = new URL(t.url).pathname.slice(1)
    await t.sql.unsafe(`alter database "${name}" set default_transaction_isolation = 'serializable'`)
    await insertMany(t.sql, t.quoted, 40, { stage: `'strict'` })
    const strict = createLeases({ db: t.open({ poolMax: 4 }), table: t.profile })
    const finished = await Promise.all(
      ['a', 'b', 'c', 'd'].map(async (workerId) => {
        let count = 0
        for (;;) {
          const claimed = await strict.claimNext({ workerId, limit: 3, stages: ['strict'] })
          if (!claimed.ok) throw new Error(claimed.error)
          if (claimed.value.length === 0) return count
          for (const { lease } of claimed.value) {
            expect(await strict.finishJob(lease, true)).toMatchObject({ ok: true })
            count += 1
          }
        }
      }),
    )
    await t.sql.unsafe(`alter database "${name}" reset default_transaction_isolation`)
    expect(finished.reduce((sum, count) => sum + count, 0)).toBe(40)
  })

  test('a profile without holder or attempts is refused: there is nothing to fence with', async () => {
    const { columns } = t.profile
    const unfenced = createLeases({ db: t.db, table: { ...t.profile, columns: { ...columns, attempts: null } } })
    const refused = await unfenced.claimNext({ workerId: 'w', limit: 1 }).catch((error: unknown) => String(error))
    expect(refused).toContain('need columns for holder')
  })

  test('D9: a heartbeat that waited for a lock grants a lease that is full when it is granted', async () => {
    const lease = await claim(await put(), 'worker-a', 2)
    const locked = Promise.withResolvers<void>()
    const holding = t.sql.begin(async (host) => {
      await host.unsafe(`select 1 from ${t.quoted} where id::text = $1 for update`, [lease.id])
      locked.resolve()
      await host`select pg_sleep(2.5)`
    })
    await locked.promise
    const beat = await leases.heartbeatJob(lease)
    await holding
    expect(beat.ok).toBe(true)
    const [row] = await t.sql.unsafe<{ left: number }[]>(
      `select extract(epoch from lease_expires_at - clock_timestamp())::float8 as left from ${t.quoted} where id::text = $1`,
      [lease.id],
    )
    expect(row?.left).toBeGreaterThan(1)
  })

  test('a finish makes it done, clears the lock and tells once, however often it is said (X1)', async () => {
    const lease = await claim(await put())
    expect(await leases.finishJob(lease.id, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await leases.finishJob(lease.id, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await leases.finishJob(lease, false, { code: 'LATE' })).toMatchObject({
      ok: true,
      value: { status: 'done' },
    })
    expect(await read(lease.id)).toMatchObject({
      status: 'done',
      locked_by: null,
      lease_expires_at: null,
      progress: 100,
    })
    expect(await eventTypes(t.sql, lease.id)).toEqual(['processing', 'done'])
    expect(await leases.heartbeatJob(lease)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
  })

  test('a transient failure waits for its backoff, and saying it twice counts once', async () => {
    const lease = await claim(await put())
    const first = await leases.finishJob(lease, false, { code: 'NETWORK', reason: 'socket hang up' })
    expect(first).toMatchObject({ ok: true, value: { status: 'queued' } })
    expect(await leases.finishJob(lease, false, { code: 'NETWORK' })).toMatchObject({
      ok: true,
      value: { status: 'queued' },
    })
    const row = await read(lease.id)
    expect(row).toMatchObject({ status: 'queued', attempt_count: 1, locked_by: null, lease_expires_at: null })
    const waitMs = (row.next_earliest_run_at?.getTime() ?? 0) - Date.now()
    expect(waitMs).toBeGreaterThan(25_000)
    expect(waitMs).toBeLessThan(33_500)
    const [, retry] = await readEvents(t.sql, lease.id)
    expect(retry).toMatchObject({
      type: 'retry:scheduled',
      table: shape.table,
      details: { attempt: 1, holder: 'worker-a', code: 'NETWORK', reason: 'socket hang up' },
    })
    expect(await eventTypes(t.sql, lease.id)).toEqual(['processing', 'retry:scheduled'])
  })

  test('the last transient failure is RETRIES_EXHAUSTED with the last code as its reason', async () => {
    const lease = await claim(await put({ attempt_count: '2' }))
    expect(await leases.finishJob(lease, false, { code: 'STORAGE' })).toMatchObject({
      ok: true,
      value: { status: 'failed' },
    })
    const row = await read(lease.id)
    expect(row).toMatchObject({ status: 'failed', fail_reason: 'STORAGE', attempt_count: 3 })
    // The varchar(12) column of one shape cuts the code; nothing fails for it.
    expect('RETRIES_EXHAUSTED'.startsWith(row.fail_code ?? '-')).toBe(true)
    expect(await eventTypes(t.sql, lease.id)).toEqual(['processing', 'failed'])
  })

  test('a permanent failure ends the job at once and keeps its attempts', async () => {
    for (const details of [{ code: 'VALIDATION' }, { code: 'INPUT_TOO_LARGE' }, { code: 'CUSTOM', permanent: true }]) {
      const lease = await claim(await put())
      expect(await leases.finishJob(lease, false, details)).toMatchObject({ ok: true, value: { status: 'failed' } })
      expect(await read(lease.id)).toMatchObject({ status: 'failed', attempt_count: 1 })
    }
  })

  test('whatever a caller gives as code and reason can be stored', async () => {
    const lease = await claim(await put())
    const nasty = { code: '\0\ud800<script>', reason: `a\0b\udfff${'x'.repeat(5_000_000)}` }
    expect(await leases.finishJob(lease, false, nasty)).toMatchObject({ ok: true })
    expect((await read(lease.id)).fail_reason?.length).toBeLessThanOrEqual(2000)
  })

  test('D21: a finish that breaks a unique index of the host ends the job with the constraint named', async () => {
    await t.sql.unsafe(
      `create unique index one_done_only on ${t.quoted} (stage) where status = 'done' and stage = 'unique'`,
    )
    const [first, second] = [
      await claim(await put({ stage: `'unique'` })),
      await claim(await put({ stage: `'unique'` })),
    ]
    expect(await leases.finishJob(first, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await leases.finishJob(second, true)).toMatchObject({ ok: true, value: { status: 'failed' } })
    expect((await read(second.id)).fail_reason).toContain('one_done_only')
    await t.sql.unsafe(`drop index ${t.quoted.split('.').length > 1 ? `${t.quoted.split('.')[0]}.` : ''}one_done_only`)
  })

  async function change(lease: Lease, set: string): Promise<Lease> {
    await t.sql.begin(async (host) => {
      await host.unsafe(`update ${t.quoted} set ${set} where id::text = $1`, [lease.id])
      const events = shape.events
        .split('.')
        .map((part) => `"${part}"`)
        .join('.')
      await host.unsafe(
        `insert into ${events} (job_id, data) select id, '{"type":"by hand"}' from ${t.quoted} where id::text = $1`,
        [lease.id],
      )
    })
    return lease
  }

  async function counted(name: string): Promise<number> {
    return Number(new RegExp(`^${name} (\\d+)`, 'm').exec(await metrics.text())?.[1] ?? 0)
  }
})

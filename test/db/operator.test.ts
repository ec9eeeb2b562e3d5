/** What a person does by hand, on each team's own table: guarded by what they saw, told with who and why. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import type { Seen } from '../../src/db/job-filter.ts'
import { cancelJobs } from '../../src/db/operate.ts'
import { openTable } from '../../src/db/table.ts'
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { ACTIONS, type Action } from '../../src/operator/explain.ts'
import type { Operator } from '../../src/operator/operator.ts'
import { createLeases, type Lease, type Leases } from '../../src/worker/lease.ts'
import { operatorOn, STAGES, withoutGrace } from '../support/operator.ts'
import {
  type CanonicalColumns,
  type CanonicalRow,
  TEAMS,
  type TeamDatabase,
  teamDatabase,
} from '../support/profiles.ts'
import { brokenInvariants } from '../support/witness.ts'

const DEED = { actor: 'Ana', reason: 'the disk was full' }
const FAILED: CanonicalColumns = { status: 'failed', attempts: '1', failCode: `'DISK'`, failReason: `'no space'` }
const HELD: CanonicalColumns = {
  status: 'processing',
  holder: `'host-a1'`,
  attempts: '1',
  leaseExpiresAt: `now() + interval '1 minute'`,
  heartbeatAt: 'now()',
  startedAt: 'now()',
}

describe.each(TEAMS)('$title', (team) => {
  let t: TeamDatabase
  let operator: Operator
  let leases: Leases
  let metrics: Metrics
  let table: string
  /** What becomes of a job that is taken from its holder with attempts left. */
  let recovered: 'queued' | 'failed'

  beforeAll(async () => {
    t = await teamDatabase(team)
    table = t.profile.table
    metrics = createMetrics({ stages: ['clip'], tables: [table] })
    operator = operatorOn(t.db, [withoutGrace(t.profile)], { metrics })
    leases = createLeases({ db: t.db, table: t.profile, stages: STAGES })
    recovered = t.profile.policy.onExpiry === 'fail' ? 'failed' : 'queued'
  })
  afterAll(async () => {
    const broken = await brokenInvariants(t.sql, t.profile)
    await t[Symbol.asyncDispose]()
    expect(broken).toEqual([])
  })

  const act = (action: Action, id: string, seen?: Seen): ReturnType<Operator['act']> =>
    operator.act(action, { table, id, seen }, DEED)
  const last = async (id: string): Promise<{ type: string; details: Record<string, unknown> }> =>
    (await t.events(id)).at(-1) ?? { type: 'none', details: {} }
  async function claim(id: string, holder = 'host-a1'): Promise<Lease> {
    const claimed = await leases.claimJob(id, holder)
    if (!claimed.ok) throw new Error(claimed.error)
    return claimed.value.lease
  }
  /** A job that is in the way of other tests in the same table is put to rest. */
  async function state(id: string): Promise<[CanonicalRow, unknown]> {
    return [await t.read(id), await t.events(id)]
  }

  test('a retry queues a failed job, due now, and tells who did it and why', async () => {
    const id = await t.put({ ...FAILED, nextRunAt: `now() + interval '1 hour'` })
    const answer = await act('retry', id)
    expect(answer).toMatchObject({
      ok: true,
      value: { table, id, action: 'retry', job: { status: 'queued', isDue: true } },
    })
    expect(await t.read(id)).toMatchObject({ status: 'queued', attempts: 1, holder: null, leaseExpiresAt: null })
    expect(await last(id)).toMatchObject({ type: 'operator:retry', details: { attempt: 1, ...DEED } })
    expect((await claim(id)).attempt).toBe(2)
  })

  test('a retry without attempts left raises the maximum and never lowers the attempts; without a column it is refused', async () => {
    const id = await t.put({ ...FAILED, attempts: '7', maxAttempts: '3' })
    const before = await state(id)
    const answer = await act('retry', id)
    if (t.has('maxAttempts')) {
      expect(await t.read(id)).toMatchObject({ status: 'queued', attempts: 7, maxAttempts: 8 })
      expect((await last(id)).details).toMatchObject({ attempt: 7, max_attempts: 8 })
      expect((await claim(id)).attempt).toBe(8)
    } else {
      expect(answer).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
      expect(await state(id)).toEqual(before)
    }
  })

  test('a retry leaves a maximum that is high enough as it is', async () => {
    if (!t.has('maxAttempts')) return
    const id = await t.put({ ...FAILED, maxAttempts: '9' })
    await act('retry', id)
    expect(await t.read(id)).toMatchObject({ attempts: 1, maxAttempts: 9 })
  })

  test('a retry makes a waiting job due, and lets one run that had no attempt left', async () => {
    const waiting = await t.put({ attempts: '1', nextRunAt: `'infinity'` })
    expect(await act('retry', waiting)).toMatchObject({ ok: true, value: { job: { isDue: true } } })
    expect((await claim(waiting)).attempt).toBe(2)
    if (!t.has('maxAttempts')) return
    const exhausted = await t.put({ attempts: '3', maxAttempts: '3', nextRunAt: `now() - interval '1 hour'` })
    expect(await leases.claimJob(exhausted, 'host-a1')).toMatchObject({ code: 'NO_ATTEMPTS_LEFT' })
    await act('retry', exhausted)
    expect((await claim(exhausted)).attempt).toBe(4)
  })

  test('a job that is due already keeps its place in the queue', async () => {
    if (!t.has('nextRunAt')) return
    const id = await t.put({ nextRunAt: `now() - interval '1 hour'` })
    const { nextRunAt } = await t.read(id)
    expect(await act('retry', id)).toMatchObject({ ok: true })
    expect((await t.read(id)).nextRunAt).toEqual(nextRunAt)
  })

  test('what a worker of the team’s own left behind on a failed job is cleared by the retry', async () => {
    const id = await t.put({ ...FAILED, holder: `'old'`, leaseExpiresAt: `now() - interval '1 day'` })
    await act('retry', id)
    expect(await t.read(id)).toMatchObject({ status: 'queued', holder: null, leaseExpiresAt: null })
  })

  test('a cancel ends a waiting job; no claim takes it', async () => {
    const id = await t.put()
    expect(await act('cancel', id)).toMatchObject({ ok: true, value: { job: { status: 'failed' } } })
    const reason = t.has('failCode') ? DEED.reason : `cancelled: ${DEED.reason}`
    expect(await t.read(id)).toMatchObject({ status: 'failed', failReason: reason })
    if (t.has('failCode')) expect((await t.read(id)).failCode).toBe('cancelled')
    expect(await last(id)).toMatchObject({ type: 'operator:cancel', details: { code: 'cancelled', ...DEED } })
    expect(await leases.claimJob(id, 'host-a1')).toMatchObject({ code: 'NOT_QUEUED' })
  })

  test('a worker learns of a cancel at its next heartbeat, and its finish is refused', async () => {
    const id = await t.put()
    const lease = await claim(id)
    expect(await act('cancel', id)).toMatchObject({ ok: true })
    const cancelled = await state(id)
    expect(await leases.heartbeatJob(lease)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(lease, true)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(lease, false)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await state(id)).toEqual(cancelled)
    expect((await last(id)).details).toMatchObject({ attempt: 1, holder: 'host-a1' })
  })

  test('an ended lease goes the way of the expired, and its worker writes nothing more', async () => {
    const id = await t.put()
    const lease = await claim(id)
    expect(await act('end-lease', id)).toMatchObject({ ok: true, value: { job: { status: recovered } } })
    const ended = await state(id)
    expect(ended[0]).toMatchObject({ status: recovered, attempts: 1, holder: null, leaseExpiresAt: null })
    const told = (await t.events(id)).find(({ type }) => type === 'operator:lease_ended')
    expect(told?.details).toMatchObject({
      reason: 'lease_ended',
      cause: DEED.reason,
      actor: DEED.actor,
      holder: 'host-a1',
    })
    expect(await leases.heartbeatJob(lease)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(lease, true)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await state(id)).toEqual(ended)
    if (recovered === 'queued' && t.has('nextRunAt'))
      expect(await leases.claimJob(id, 'b')).toMatchObject({ code: 'NOT_DUE' })
  })

  test('an ended lease without attempts left fails the job, and says who ended it and why', async () => {
    const id = await t.put({ ...HELD, attempts: '3', maxAttempts: '3' })
    await act('end-lease', id)
    expect(await t.read(id)).toMatchObject({ status: 'failed', failReason: DEED.reason })
    if (t.has('failCode')) expect((await t.read(id)).failCode).toBe('lease_ended')
    expect(await last(id)).toMatchObject({ type: 'operator:lease_ended', details: { actor: DEED.actor } })
  })

  test.each<[Action, string, CanonicalColumns, Seen]>([
    ['retry', 'has been retried and runs', HELD, { status: 'failed', attempt: 1 }],
    ['retry', 'has failed once more', { ...FAILED, attempts: '2' }, { status: 'failed', attempt: 1 }],
    ['cancel', 'has begun to run', HELD, { status: 'queued', attempt: 0 }],
    ['cancel', 'runs again', { ...HELD, attempts: '2' }, { status: 'processing', attempt: 1 }],
    ['cancel', 'is held by another one', HELD, { status: 'processing', attempt: 1, holder: 'host-b2' }],
    ['end-lease', 'runs again', { ...HELD, attempts: '2' }, { status: 'processing', attempt: 1 }],
    ['end-lease', 'is held by another one', HELD, { status: 'processing', attempt: 1, holder: 'host-b2' }],
    ['end-lease', 'has ended', { status: 'done', attempts: '1' }, { status: 'processing', attempt: 1 }],
  ])('a %s of a job that %s since it was seen is refused, and nothing is written', async (action, _, now, seen) => {
    const id = await t.put(now)
    const before = await state(id)
    expect(await act(action, id, seen)).toMatchObject({ ok: false, code: 'CHANGED' })
    expect(await state(id)).toEqual(before)
  })

  test.each<[Action, string, CanonicalColumns]>([
    ['retry', 'done', { status: 'done', attempts: '1' }],
    ['retry', 'running', HELD],
    ['cancel', 'done', { status: 'done', attempts: '1' }],
    ['cancel', 'failed', FAILED],
    ['end-lease', 'queued', {}],
    ['end-lease', 'failed', FAILED],
  ])('a %s of a job that is %s is not allowed, and nothing is written', async (action, _, now) => {
    const id = await t.put(now)
    const before = await state(id)
    expect(await act(action, id)).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
    expect(await state(id)).toEqual(before)
  })

  test.each<[Action, CanonicalColumns]>([
    ['retry', FAILED],
    ['cancel', HELD],
    ['end-lease', HELD],
  ])('of eight who %s at once one wins, and it is told once', async (action, now) => {
    const id = await t.put(now)
    const [found] = await operator.find(id)
    const { status, attempt, holder } = found?.job ?? {}
    const seen = { status, attempt, holder } as Seen
    const answers = await Promise.all(Array.from({ length: 8 }, () => act(action, id, seen)))
    expect(answers.filter(({ ok }) => ok)).toHaveLength(1)
    expect(answers.flatMap((answer) => (answer.ok ? [] : [answer.code]))).toEqual(Array(7).fill('CHANGED'))
    expect((await t.events(id)).filter(({ type }) => type.startsWith('operator:'))).toHaveLength(1)
  })

  test('a cancel against a finish at the same moment: one of them happened, and the other one says so', async () => {
    for (let round = 0; round < 5; round += 1) {
      const id = await t.put()
      const lease = await claim(id)
      const [cancelled, finished] = await Promise.all([act('cancel', id), leases.finishJob(lease, true)])
      expect([cancelled.ok, finished.ok].filter(Boolean)).toHaveLength(1)
      expect((await t.read(id)).status).toBe(finished.ok ? 'done' : 'failed')
    }
  })

  test.each(ACTIONS)('%s needs a reason', async (action) => {
    const id = await t.put(FAILED)
    const before = await state(id)
    expect(await operator.act(action, { table, id }, { actor: 'Ana', reason: ' \0\n' })).toMatchObject({
      ok: false,
      code: 'NO_REASON',
    })
    expect(await state(id)).toEqual(before)
  })

  test('whatever is given as actor and reason is stored as text, cut to a length', async () => {
    const id = await t.put(FAILED)
    const hostile = `\u001b[2J<script>alert(1)</script>'; drop table x;--\0\ud800${'x'.repeat(5_000_000)}`
    expect(await operator.act('retry', { table, id }, { actor: hostile, reason: hostile })).toMatchObject({ ok: true })
    const { actor, reason } = (await last(id)).details as { actor: string; reason: string }
    expect([actor.length <= 200, reason.length <= 500]).toEqual([true, true])
    expect(reason).toStartWith(`\u001b[2J<script>alert(1)</script>'; drop table x;--`)
  })

  test.each(['', 'nope', '0', `' or true --`, '99999999999999999999999', 'a\0b', 'x/../y', 'x'.repeat(10_000)])(
    'an id that belongs to no job is told as such: %j',
    async (id) => {
      expect(await operator.find(id)).toEqual([])
      expect(await operator.events(table, id)).toEqual([])
      for (const action of ACTIONS) expect(await act(action, id)).toMatchObject({ ok: false, code: 'NOT_FOUND' })
    },
  )

  describe('all that match', () => {
    const counted = async (columns: CanonicalColumns, many: number): Promise<string[]> =>
      Promise.all(Array.from({ length: many }, () => t.put(columns)))
    const statuses = async (ids: string[]): Promise<Record<string, number>> => {
      const rows = await Promise.all(ids.map((id) => t.read(id)))
      return Object.fromEntries(
        [...Map.groupBy(rows, ({ status }) => status)].map(([status, group]) => [status, group.length]),
      )
    }
    const all = (
      action: 'retry' | 'cancel',
      filter: Parameters<Operator['count']>[1],
      atMost: number,
      onProgress?: (moved: number) => void,
    ): ReturnType<Operator['actOnAll']> => operator.actOnAll(action, { table, filter, atMost }, DEED, onProgress)

    test('only those that match are retried, no more than asked for, and each is told', async () => {
      if (!t.has('failCode')) return
      const wanted = await counted({ ...FAILED, failCode: `'BULK_A'` }, 7)
      const others = await counted({ ...FAILED, failCode: `'BULK_B'` }, 3)
      expect(await operator.count(table, { status: 'failed', code: 'BULK_A' })).toBe(7)
      const progress: number[] = []
      expect(await all('retry', { code: 'BULK_A' }, 5, (moved) => progress.push(moved))).toEqual({ ok: true, value: 5 })
      expect(progress).toEqual([5])
      expect(await statuses(wanted)).toEqual({ queued: 5, failed: 2 })
      expect(await statuses(others)).toEqual({ failed: 3 })
      expect(await all('retry', { code: 'BULK_A' }, 100)).toEqual({ ok: true, value: 2 })
      expect(await all('retry', { code: 'BULK_A' }, 100)).toEqual({ ok: true, value: 0 })
      for (const id of wanted) expect(await last(id)).toMatchObject({ type: 'operator:retry', details: DEED })
    })

    test('where no attempt is left and none can be added, nothing is retried', async () => {
      const ids = await counted({ ...FAILED, attempts: '3', failCode: `'SPENT'` }, 3)
      await all('retry', t.has('failCode') ? { code: 'SPENT' } : {}, 1000)
      expect(await statuses(ids)).toEqual(t.has('maxAttempts') ? { queued: 3 } : { failed: 3 })
    })

    test('waiting jobs are cancelled, running ones are not', async () => {
      const running = await t.put({ ...HELD, holder: `'bulk'` })
      const waiting = await counted({}, 4)
      const count = await operator.count(table, { status: 'queued' })
      expect(await all('cancel', {}, 1000)).toEqual({ ok: true, value: count })
      expect(await statuses(waiting)).toEqual({ failed: 4 })
      expect(await statuses([running])).toEqual({ processing: 1 })
    })

    test('a filter for another status than the action begins at is refused', async () => {
      const id = await t.put(FAILED)
      expect(await all('retry', { status: 'queued' }, 10)).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
      expect(await all('cancel', { status: 'failed' }, 10)).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
      expect(await statuses([id])).toEqual({ failed: 1 })
    })

    test('a job that matched when it was read, and does not when it is locked, is left alone', async () => {
      const [a, b] = [await t.put({ stage: `'one'` }), await t.put({ stage: `'two'` })]
      const opened = await openTable(t.db, t.profile)
      const rows = await cancelJobs(t.db, opened, { ids: [a, b], filter: { stage: 'one' } }, DEED)
      const matches = t.has('stage') ? [a] : []
      expect(rows.map(({ id }) => id)).toEqual(matches)
      expect(await statuses([a, b])).toEqual(t.has('stage') ? { failed: 1, queued: 1 } : { queued: 2 })
    })

    test('what somebody has locked is passed over, and not counted', async () => {
      const before = await operator.count(table, { status: 'queued' })
      const [locked = '', free = ''] = await counted({}, 2)
      const id = `"${t.profile.columns.id}"`
      await t.sql.begin(async (host) => {
        await host.unsafe(`select 1 from ${t.quoted} where ${id}::text = $1 for update`, [locked])
        expect(await all('cancel', {}, 1000)).toEqual({ ok: true, value: before + 1 })
      })
      expect(await statuses([locked, free])).toEqual({ queued: 1, failed: 1 })
      await all('cancel', {}, 1000)
    })

    test('two at once share the work, and no job is moved twice', async () => {
      const ids = await counted({}, 40)
      const answers = await Promise.all([all('cancel', {}, 1000), all('cancel', {}, 1000), all('cancel', {}, 1000)])
      const moved = answers.map((answer) => (answer.ok ? answer.value : 0)).reduce((sum, each) => sum + each, 0)
      expect(moved).toBe(40)
      for (const id of ids) expect(await t.events(id)).toHaveLength(1)
    })

    test.each([0, -1, NaN, 0.5])('at most %p is none', async (atMost) => {
      await t.put()
      expect(await all('cancel', {}, atMost)).toEqual({ ok: true, value: 0 })
    })
  })

  describe('what is seen', () => {
    test('the overview counts what is there, and leaves a table that is well alone', async () => {
      const count = async (status: string): Promise<number> =>
        (await t.sql.unsafe(`select 1 from ${t.quoted} where "${t.profile.columns.status}"::text = $1`, [status]))
          .length
      const { statuses } = t.profile
      const { tables, health } = await operator.overview()
      const [queued, processing, failed] = await Promise.all([
        count(statuses.queued),
        count(statuses.processing),
        count(statuses.failed),
      ])
      expect(tables).toMatchObject([
        { table, obstacle: null, queued, processing, failed, expired: 0, isReadOnly: false },
      ])
      expect(health.details.filter(({ level }) => level === 'unhealthy')).toEqual([])
    })

    test('running jobs come by what is reaped next, and a job past its end makes it unhealthy', async () => {
      const late = await t.put({ ...HELD, holder: `'late'`, leaseExpiresAt: `now() - interval '20 seconds'` })
      const soon = await t.put({ ...HELD, holder: `'soon'`, leaseExpiresAt: `now() + interval '5 seconds'` })
      const ids = (await operator.leases()).map(({ id }) => id)
      expect(ids.slice(0, 2)).toEqual([late, soon])
      expect((await operator.leases({ holder: 'soon' })).map(({ id }) => id)).toEqual([soon])
      const [holders] = await operator.workers()
      expect(holders?.holders[0]).toMatchObject({ holder: 'late', jobs: 1, expired: 1 })
      const { health } = await operator.overview()
      expect(health.level).toBe('unhealthy')
      expect(health.sentence).toContain(`${table}: 1 running job past its deadline, the first for 2`)
      expect(await operator.dryRun(table)).toMatchObject([{ id: late, rule: 'lease_expired' }])
      await act('end-lease', late)
      await act('end-lease', soon)
    })

    test('pages go down by id until there is no next, and no job is left out or shown twice', async () => {
      const all = (await t.sql.unsafe(`select "${t.profile.columns.id}"::text as id from ${t.quoted}`)).length
      const seen: string[] = []
      let after: string | null = null
      do {
        const { jobs, next } = await operator.jobs(table, { filter: {}, after, limit: 7 })
        seen.push(...jobs.map(({ id }) => id))
        after = next
      } while (after !== null)
      expect(seen).toHaveLength(all)
      expect(new Set(seen).size).toBe(all)
    })

    test('each filter finds what matches and nothing else', async () => {
      const id = await t.put({ ...FAILED, stage: `'odd/stage'`, failCode: `'C''1'`, holder: 'null' })
      const find = async (filter: Parameters<Operator['count']>[1]): Promise<string[]> => {
        const { jobs } = await operator.jobs(table, { filter, limit: 500 })
        expect(await operator.count(table, filter)).toBe(jobs.length)
        return jobs.map((job) => job.id)
      }
      expect(await find({ status: 'failed' })).toContain(id)
      expect(await find({ status: 'done' })).not.toContain(id)
      if (t.has('failCode')) {
        expect(await find({ code: `C'1` })).toEqual([id])
        expect(await find({ code: null })).not.toContain(id)
      }
      if (t.has('stage')) {
        expect(await find({ stage: 'odd/stage', status: 'failed' })).toEqual([id])
        expect(await find({ stage: null })).not.toContain(id)
      }
      expect(await find({ holder: 'a\0b' })).toEqual([])
    })

    test('a job’s page has its attempts, its events in order and every column of its row', async () => {
      const created = await leases.enqueueJob()
      const id = created.ok ? created.value : ''
      await leases.finishJob(await claim(id, 'host-1'), false, { code: 'NETWORK', reason: 'cable' })
      await t.change(id, { nextRunAt: 'now()' })
      await leases.finishJob(await claim(id, 'host-2'), true)
      const [found] = await operator.find(id)
      expect(found?.timeline.map(({ type }) => type)).toEqual([
        'created',
        'processing',
        'retry:scheduled',
        'processing',
        'done',
      ])
      expect(found?.attempts).toMatchObject([
        { attempt: 1, holder: 'host-1', end: 'retry:scheduled', code: 'NETWORK', reason: 'cable' },
        { attempt: 2, holder: 'host-2', end: 'done' },
      ])
      const columns = await t.sql.unsafe(`select * from ${t.quoted} limit 0`)
      expect(found?.fields.map(({ name }) => name)).toEqual(columns.columns.map(({ name }) => name))
      expect(found?.fields.find(({ name }) => name === t.profile.columns.status)?.value).toBe(t.profile.statuses.done)
      expect(found?.explanation.actions).toEqual([])
    })

    test('the plan of a deploy says what ends by itself and what is given back', async () => {
      const started = `now() - interval '60 seconds'`
      const id = await t.put({ ...HELD, holder: `'drain'`, startedAt: started, progress: '80' })
      const { jobs, isCut } = await operator.drain(10)
      const planned = jobs.find((job) => job.id === id)
      expect(planned).toMatchObject(
        t.has('progress') ? { outcome: 'given back', holder: 'drain' } : { outcome: 'unknown', remainingSec: null },
      )
      if (t.has('progress')) expect(Math.round(planned?.remainingSec ?? 0)).toBe(15)
      expect(isCut).toBe(false)
      expect((await operator.drain(20)).jobs.find((job) => job.id === id)?.outcome).toBe(
        t.has('progress') ? 'finishes' : 'unknown',
      )
    })

    test('the plots count what was done, requeued and failed, where events have numbers', async () => {
      await operator.sampleHistory()
      const [history] = operator.history()
      const home = await t.sql`
        select 1 from information_schema.columns where column_name = 'id' and data_type in ('integer', 'bigint')
          and table_name ilike any(array['job%event%', 'log%', 'job_log%'])`
      expect(history?.hasEvents).toBe(home.length > 0)
      expect(history?.minutes).toHaveLength(60)
      expect(history?.minutes.at(-1)?.queued).toBeGreaterThanOrEqual(0)
    })
  })

  test('what was done by hand is counted', async () => {
    const lines = (await metrics.text()).split('\n').filter((line) => line.startsWith('operator_actions_total{'))
    for (const action of ['retry', 'cancel', 'end_lease']) {
      const line = lines.find((each) => each.includes(`table="${table}"`) && each.includes(`action="${action}"`))
      expect(Number(line?.split(' ').at(-1))).toBeGreaterThan(0)
    }
  })

  test('a pass of the reaper after all that changes nothing that was not due', async () => {
    const reaper = createReaper({ db: t.db, tables: [t.profile], stages: STAGES })
    expect(await reaper.reap(table)).toEqual({ requeuedIds: [], failedIds: [] })
  })
})

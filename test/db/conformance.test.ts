/** One suite for every spelling: what is promised holds on each team's own table, told in that table's own words. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import { examine } from '../../src/db/doctor.ts'
import { planMigration } from '../../src/db/migrate.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createReaper, type Reaper } from '../../src/reaper/loop.ts'
import { createMetrics, type Metrics } from '../../src/telemetry/metrics.ts'
import { createLeases, type Lease, type Leases } from '../../src/worker/lease.ts'
import { type CanonicalColumns, TEAMS, type TeamDatabase, teamDatabase } from '../support/profiles.ts'
import { brokenInvariants } from '../support/witness.ts'

const LONG_AGO = `now() - interval '3 hours'`
const EXPIRED: CanonicalColumns = {
  status: 'processing',
  holder: `'dead-worker'`,
  attempts: '1',
  leaseExpiresAt: `now() - interval '1 minute'`,
  heartbeatAt: `now() - interval '2 minutes'`,
  startedAt: `now() - interval '5 minutes'`,
}
const stages = stagePolicy({
  heartbeatSec: 10,
  factors: { clip: 6, asr: 12, burnin: 8 },
  defaultLeaseSec: 300,
  maxRuntimeSec: 21_600,
})

describe.each(TEAMS)('$title', (team) => {
  let t: TeamDatabase
  let leases: Leases
  let reaper: Reaper
  let metrics: Metrics
  /** What becomes of a job that ran out with attempts left. */
  let recovered: 'queued' | 'failed'

  beforeAll(async () => {
    t = await teamDatabase(team)
    metrics = createMetrics({ stages: ['clip', 'asr', 'burnin'], tables: [t.profile.table] })
    leases = createLeases({ db: t.db, table: t.profile, stages, metrics })
    reaper = createReaper({ db: t.db, tables: [t.profile], stages, metrics })
    recovered = t.profile.policy.onExpiry === 'fail' ? 'failed' : 'queued'
  })
  afterAll(async () => {
    const broken = await brokenInvariants(t.sql, t.profile)
    await t[Symbol.asyncDispose]()
    expect(broken).toEqual([])
  })

  async function claim(id: string, holder = 'worker-a', leaseSec?: number): Promise<Lease> {
    const claimed = await leases.claimJob(id, holder, leaseSec)
    if (!claimed.ok) throw new Error(claimed.error)
    return claimed.value.lease
  }
  const reap = (): ReturnType<Reaper['reap']> => reaper.reap(t.profile.table)
  const types = async (id: string): Promise<string[]> => (await t.events(id)).map(({ type }) => type)

  test('the doctor has nothing against it, and a second migration finds nothing to do', async () => {
    const settings = {
      url: t.url,
      stages,
      leaseTimeoutSec: 30,
      nullLeaseSec: 3600,
      queuedOrphanSec: 300,
      maxAttempts: 3,
      backoffLadderMs: [1000],
    }
    const findings = await examine(t.db, [t.profile], {
      ...settings,
      prepare: false,
      hasDispatcher: false,
      warnings: [],
    })
    expect(findings.filter(({ level, place }) => level !== 'note' && place !== 'synchronous_commit')).toEqual([])
    expect(await planMigration(t.db, { tables: [t.profile], maxAttempts: 3, isAttached: true })).toEqual([])
  })

  test('a claim sets status, holder, attempt and a full lease, and tells it', async () => {
    const id = await t.put()
    const lease = await claim(id)
    const row = await t.read(id)
    expect(row).toMatchObject({ id, status: 'processing', holder: 'worker-a', attempts: 1 })
    expect((row.leaseExpiresAt as Date).getTime() - Date.now()).toBeGreaterThan(25_000)
    expect(lease.until).toEqual(row.leaseExpiresAt as Date)
    expect(await t.events(id)).toMatchObject([
      { type: 'processing', table: t.profile.table, details: { attempt: 1, holder: 'worker-a' } },
    ])
  })

  test('a fixed stage and factors of its own decide the lease', async () => {
    const { stage, slaFactors } = t.profile
    const own = Object.keys(slaFactors)[0]
    const id = await t.put(own ? { stage: `'${own}'` } : {})
    const lease = await claim(id)
    const expected = own ? 10 * (slaFactors[own] ?? 0) : stage ? stages.leaseSec[stage] : 300
    expect(lease.leaseSec).toBe(expected ?? 0)
  })

  test('claimNext takes exactly what was asked for, however many ask', async () => {
    for (let n = 0; n < 12; n += 1) await t.put()
    const answers = await Promise.all(['a', 'b', 'c', 'd'].map((workerId) => leases.claimNext({ workerId, limit: 2 })))
    const taken = answers.flatMap((answer) => (answer.ok ? answer.value.map(({ lease }) => lease.id) : []))
    expect(taken).toHaveLength(8)
    expect(new Set(taken).size).toBe(8)
  })

  test('a heartbeat renews; of an old fence nothing is written', async () => {
    const id = await t.put()
    const old = await claim(id, 'zombie')
    await t.change(id, { leaseExpiresAt: `now() - interval '1 second'` })
    expect((await leases.heartbeatJob(old)).ok).toBe(true)
    await t.change(id, { leaseExpiresAt: `now() - interval '1 second'`, heartbeatAt: LONG_AGO })
    await reap()
    const before = await t.read(id)
    const told = (await t.events(id)).length
    expect(before.status).toBe(recovered)
    expect(await leases.heartbeatJob(old)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(old, true)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await leases.finishJob(old, false)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
    expect(await t.read(id)).toEqual(before)
    expect((await t.events(id)).length).toBe(told)
  })

  test('a finish makes it done, clears the lock and is told once, however often it is said', async () => {
    const id = await t.put()
    const lease = await claim(id)
    expect(await leases.finishJob(lease, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await leases.finishJob(lease, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await t.read(id)).toMatchObject({ status: 'done', holder: null, leaseExpiresAt: null })
    if (t.has('finishedAt')) expect((await t.read(id)).finishedAt).toBeInstanceOf(Date)
    expect(await types(id)).toEqual(['processing', 'done'])
  })

  test('a transient failure queues it again, a permanent one ends it with its reason', async () => {
    const id = await t.put()
    const ended = await leases.finishJob(await claim(id), false, { code: 'NETWORK', reason: 'cable' })
    expect(ended).toMatchObject({ ok: true, value: { status: 'queued' } })
    if (t.has('nextRunAt')) expect(await leases.claimJob(id, 'b')).toMatchObject({ ok: false, code: 'NOT_DUE' })
    const bad = await t.put()
    await leases.finishJob(await claim(bad), false, { code: 'VALIDATION', reason: 'no picture' })
    expect(await t.read(bad)).toMatchObject({ status: 'failed', failReason: 'no picture' })
    expect(await types(bad)).toEqual(['processing', 'failed'])
  })

  test('a job whose lease has run out is recovered by the policy of its table, with its events', async () => {
    const id = await t.put(EXPIRED)
    const result = await reap()
    expect(recovered === 'queued' ? result.requeuedIds : result.failedIds).toContain(id)
    const row = await t.read(id)
    expect(row).toMatchObject({ status: recovered, holder: null, leaseExpiresAt: null, attempts: 1 })
    if (recovered === 'failed') {
      expect(row.failReason).toBe(t.profile.policy.orphanReason as never)
      expect(row.finishedAt).toBeInstanceOf(Date)
      expect(await types(id)).toEqual(['reaper:failed(timeout)'])
    } else {
      expect(await types(id)).toEqual(['reaper:requeued', 'requeued:stale'])
    }
    expect((await reap()).requeuedIds).toEqual([])
  })

  test('without attempts left it fails, and says by which rule', async () => {
    const id = await t.put({ ...EXPIRED, attempts: '3', maxAttempts: '3' })
    await reap()
    const reason = t.profile.policy.orphanReason ?? 'lease_expired'
    expect(await t.read(id)).toMatchObject({ status: 'failed', failReason: reason })
    expect((await t.events(id)).at(-1)?.details.reason).toBe('lease_expired')
  })

  test('a live lease and a fresh heartbeat without a lease are left alone', async () => {
    const held = await t.put({ ...EXPIRED, leaseExpiresAt: `now() + interval '1 minute'`, heartbeatAt: 'now()' })
    const beating = await t.put({ ...EXPIRED, leaseExpiresAt: 'null', holder: 'null', heartbeatAt: 'now()' })
    await reap()
    expect([(await t.read(held)).status, (await t.read(beating)).status]).toEqual(['processing', 'processing'])
  })

  test.each<[string, CanonicalColumns, string]>([
    [
      'stale heartbeat, no lease',
      { leaseExpiresAt: 'null', holder: 'null', heartbeatAt: `now() - interval '150 seconds'` },
      'heartbeat_stale',
    ],
    [
      'no lease, no heartbeat, started long ago',
      { leaseExpiresAt: 'null', holder: 'null', heartbeatAt: 'null', startedAt: LONG_AGO },
      'no_heartbeat',
    ],
    ['lease infinity, heartbeat old', { leaseExpiresAt: `'infinity'`, heartbeatAt: LONG_AGO }, 'heartbeat_stale'],
    ['lease -infinity', { leaseExpiresAt: `'-infinity'` }, 'lease_expired'],
    ['attempts 0: its worker does not count', { attempts: '0' }, 'lease_expired'],
    ['due time infinity', { nextRunAt: `'infinity'` }, 'lease_expired'],
    ['holder NULL', { holder: 'null' }, 'lease_expired'],
  ])('odd row: %s', async (_, columns, rule) => {
    const id = await t.put({ ...EXPIRED, ...columns })
    await reap()
    expect((await t.read(id)).status).toBe(recovered)
    expect((await t.events(id)).at(-1)?.details.reason).toBe(rule)
  })

  test('enqueueJob tells created, in the table that takes it', async () => {
    const queued = await leases.enqueueJob()
    if (!queued.ok) throw new Error(queued.error)
    expect((await t.read(queued.value)).status).toBe('queued')
    expect(await types(queued.value)).toEqual(['created'])
  })

  test('what happened is counted under the table’s name', async () => {
    const text = await metrics.text()
    const counted = recovered === 'queued' ? 'reaper_requeues_total' : 'reaper_failures_total'
    const lines = text.split('\n').filter((line) => line.startsWith(`${counted}{table="${t.profile.table}"`))
    expect(lines.some((line) => Number(line.split(' ').at(-1)) > 0)).toBe(true)
  })
})

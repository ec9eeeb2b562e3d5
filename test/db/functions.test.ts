/** SQL functions for other languages: the same fence and the same events as our own workers', on every team's table. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import { functionName, planFunctions } from '../../src/db/functions.ts'
import { migrate, planMigration } from '../../src/db/migrate.ts'
import { quoteName } from '../../src/db/sql.ts'
import { openTable } from '../../src/db/table.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { createLeases, type Leases } from '../../src/worker/lease.ts'
import { TEAMS, type TeamDatabase, teamDatabase } from '../support/profiles.ts'
import { brokenInvariants } from '../support/witness.ts'

const stages = stagePolicy({ heartbeatSec: 10, factors: { clip: 6, asr: 12 }, defaultLeaseSec: 300, maxRuntimeSec: 0 })
const functions = { stages, backoffLadderMs: [30_000] }

interface Claimed {
  id: string
  attempt: string
  holder: string
  stage: string | null
  lease_until: Date
  lease_sec: number
  job: Record<string, unknown>
}

describe.each(TEAMS)('SQL functions on $title', (team) => {
  let t: TeamDatabase
  let leases: Leases

  beforeAll(async () => {
    t = await teamDatabase(team)
    await migrate(t.db, t.url, { tables: [t.profile], maxAttempts: 3, isAttached: true, functions })
    leases = createLeases({ db: t.db, table: t.profile, stages })
  })
  afterAll(async () => {
    const broken = await brokenInvariants(t.sql, t.profile)
    await t[Symbol.asyncDispose]()
    expect(broken).toEqual([])
  })

  const call = async <T>(verb: string, ...given: (string | number | boolean | null)[]): Promise<T[]> => {
    const name = quoteName(functionName(verb, t.profile.table))
    const places = given.map((_, at) => `$${at + 1}`).join(', ')
    return (await t.sql.unsafe(`select * from leasehold.${name}(${places})`, given as never[])) as unknown as T[]
  }
  const scalar = async (verb: string, ...given: (string | number | boolean | null)[]): Promise<unknown> =>
    Object.values((await call<Record<string, unknown>>(verb, ...given))[0] ?? {})[0]
  const claim = async (id: string, holder = 'py-1'): Promise<Claimed> => {
    const [claimed] = await call<Claimed>('claim_one', id, holder)
    if (!claimed) throw new Error(`job ${id} was not to be had`)
    return claimed
  }
  const types = async (id: string): Promise<string[]> => (await t.events(id)).map(({ type }) => type)

  test('claim, heartbeat, progress, finish: the row and the events are those of our own workers', async () => {
    const id = await t.put()
    const claimed = await claim(id)
    expect(claimed).toMatchObject({ id, attempt: '1', holder: 'py-1' })
    expect(Object.keys(claimed.job)).toContain(t.profile.columns.status)
    expect(Object.keys(claimed.job).filter((name) => name.startsWith('lh_'))).toEqual([])
    expect(await t.read(id)).toMatchObject({ status: 'processing', holder: 'py-1', attempts: 1 })
    await t.change(id, { leaseExpiresAt: `now() - interval '1 second'` })
    const until = (await scalar('heartbeat', id, 'py-1', 1)) as Date
    expect(until.getTime() - Date.now()).toBeGreaterThan((claimed.lease_sec - 10) * 1000)
    expect(await scalar('progress', id, 'py-1', 1, 41.5)).toBe(true)
    expect(await scalar('finish', id, 'py-1', 1, true)).toBe('done')
    expect(await scalar('finish', id, 'py-1', 1, true)).toBe('done')
    expect(await t.read(id)).toMatchObject({ status: 'done', holder: null, leaseExpiresAt: null })
    expect(await types(id)).toEqual(['processing', 'progress', 'done'])
  })

  test('a zombie writes nothing: no heartbeat, no progress, no finish, no event', async () => {
    const id = await t.put()
    await claim(id, 'zombie')
    await t.change(id, { leaseExpiresAt: `now() - interval '1 hour'`, heartbeatAt: `now() - interval '2 hours'` })
    await createReaper({ db: t.db, tables: [t.profile], stages }).reap(t.profile.table)
    const [before, told] = [await t.read(id), (await t.events(id)).length]
    expect(await scalar('heartbeat', id, 'zombie', 1)).toBeNull()
    expect(await scalar('progress', id, 'zombie', 1, 99)).toBe(false)
    expect(await scalar('finish', id, 'zombie', 1, true)).toBeNull()
    expect(await scalar('finish', id, 'zombie', 1, false, 'NETWORK')).toBeNull()
    expect(await t.read(id)).toEqual(before)
    expect((await t.events(id)).length).toBe(told)
    const again = await t.put()
    await claim(again, 'same')
    for (const [holder, attempt] of [
      ['same', 2],
      ['other', 1],
    ] as const) {
      expect(await scalar('heartbeat', again, holder, attempt)).toBeNull()
      expect(await scalar('finish', again, holder, attempt, true)).toBeNull()
    }
  })

  test('a lease taken in SQL is kept and finished in TypeScript, and the other way round', async () => {
    const id = await t.put()
    const claimed = await claim(id)
    const lease = {
      table: t.profile.table,
      id,
      holder: 'py-1',
      attempt: 1,
      stage: claimed.stage,
      leaseSec: claimed.lease_sec,
      until: claimed.lease_until,
    }
    expect((await leases.heartbeatJob(lease)).ok).toBe(true)
    expect(await leases.finishJob(lease, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    const other = await t.put()
    const taken = await leases.claimJob(other, 'ts-1')
    if (!taken.ok) throw new Error(taken.error)
    expect(await scalar('heartbeat', other, 'ts-1', 1)).toBeInstanceOf(Date)
    expect(await scalar('finish', other, 'ts-1', 1, true)).toBe('done')
  })

  test('a transient failure waits, a permanent one ends, and code and reason are kept', async () => {
    const id = await t.put()
    await claim(id)
    expect(await scalar('finish', id, 'py-1', 1, false, 'NETWORK', 'cable')).toBe('queued')
    expect(await scalar('finish', id, 'py-1', 1, false, 'NETWORK', 'cable')).toBe('queued')
    if (t.has('nextRunAt')) expect(await call('claim_one', id, 'py-2')).toEqual([])
    const bad = await t.put()
    await claim(bad)
    expect(await scalar('finish', bad, 'py-1', 1, false, 'VALIDATION', 'no sound')).toBe('failed')
    expect(await t.read(bad)).toMatchObject({ status: 'failed', failReason: 'no sound' })
    expect(await types(bad)).toEqual(['processing', 'failed'])
  })

  test('four sessions that claim at once never get one job twice, nor more than they asked for', async () => {
    for (let n = 0; n < 10; n += 1) await t.put()
    const answers = await Promise.all(['a', 'b', 'c', 'd'].map((holder) => call<Claimed>('claim', holder, 2)))
    expect(answers.map((each) => each.length)).toEqual([2, 2, 2, 2])
    expect(new Set(answers.flat().map(({ id }) => id)).size).toBe(8)
    expect(await call('claim', 'nobody', 0)).toEqual([])
  })

  test('an id that is none is nothing to be had, not an error', async () => {
    for (const id of ['', 'no-such-id', '99999999999999999999999']) {
      expect(await call('claim_one', id, 'py')).toEqual([])
      expect(await scalar('heartbeat', id, 'py', 1)).toBeNull()
      expect(await scalar('progress', id, 'py', 1, 5)).toBe(false)
      expect(await scalar('finish', id, 'py', 1, true)).toBeNull()
    }
  })

  test('a finish that breaks a unique index of the host ends the job with the index named', async () => {
    const { status } = t.profile.columns
    const doneWord = t.profile.statuses.done
    await t.sql
      .unsafe(
        `alter table ${t.quoted} add column unique_done text; create unique index one_done on ${t.quoted} (unique_done) where ${quoteName(status)} = '${doneWord}'`,
      )
      .simple()
    const [first, second] = [await t.put(), await t.put()]
    await t.sql.unsafe(
      `update ${t.quoted} set unique_done = 'm' where ${quoteName(t.profile.columns.id)}::text in ($1, $2)`,
      [first, second],
    )
    await claim(first)
    await claim(second)
    expect(await scalar('finish', first, 'py-1', 1, true)).toBe('done')
    expect(await scalar('finish', second, 'py-1', 1, true)).toBe('failed')
    expect((await t.read(second)).failReason).toBe('23505 one_done')
    await t.sql
      .unsafe(
        'drop index if exists one_done; drop index if exists media.one_done; drop index if exists "Clip Store".one_done',
      )
      .simple()
  })

  test('they are installed once, and again when the settings change', async () => {
    const options = { tables: [t.profile], maxAttempts: 3, isAttached: true }
    expect(await planMigration(t.db, { ...options, functions })).toEqual([])
    const changed = { stages, backoffLadderMs: [1000], maxAttempts: 3 }
    expect((await planFunctions(t.db, await openTable(t.db, t.profile), changed)).join('\n')).toContain(
      functionName('finish', t.profile.table),
    )
  })
})

test('a table without a fence gets no functions; long names stay apart', () => {
  const long = 'x'.repeat(60)
  expect(functionName('claim', `${long}a`)).not.toBe(functionName('claim', `${long}b`))
  expect(Buffer.byteLength(functionName('heartbeat', long))).toBeLessThanOrEqual(63)
})

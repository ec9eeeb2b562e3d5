/** What `leasehold` does to jobs by hand: only what was meant, with who and why in the job's events, and never unasked. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import type { Sql } from '../../src/db/sql.ts'
import { createLeases, type Leases } from '../../src/worker/lease.ts'
import { type Cli, cliFor, commandIn, runCli, spawnCli } from '../support/cli.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type CanonicalColumns, TEAMS, type TeamDatabase, teamDatabase } from '../support/profiles.ts'
import { type Columns, EXPIRED, HELD as OUR_HELD, insertJob, insertMany, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const WHY = ['--reason', 'the disk was full']
const FAILED: CanonicalColumns = {
  status: 'failed',
  attempts: '3',
  maxAttempts: '3',
  stage: `'clip'`,
  failCode: `'DISK'`,
}
const HELD: CanonicalColumns = {
  status: 'processing',
  holder: `'host-1-aaaa'`,
  attempts: '1',
  leaseExpiresAt: `now() + interval '1 minute'`,
  heartbeatAt: 'now()',
  startedAt: 'now()',
}

/** Said on a machine that is busy with other things, and beside the point then. */
const WAITING = /^.*waiting for the database.*\n/gm

const FAILED_ROW: Columns = { status: `'failed'`, attempt_count: '3', max_attempts: '3' }

/** Each statement that updates jobs takes so many seconds longer. */
async function slowDown(sql: Sql, seconds: string): Promise<void> {
  await sql
    .unsafe(
      `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(${seconds}); return null; end $$;
      create trigger slow before update on jobs for each statement execute function slow();`,
    )
    .simple()
}

describe.each(TEAMS.filter((_, at) => at === 1 || at === 2))('$title', (team) => {
  let t: TeamDatabase
  let cli: Cli
  let leases: Leases
  let table: string
  let folder: Disposable

  beforeAll(async () => {
    t = await teamDatabase(team)
    const made = cliFor(t, [team.entry])
    ;({ cli } = made)
    folder = made
    table = t.profile.table
    leases = createLeases({ db: t.db, table: t.profile })
  })
  afterAll(async () => {
    folder[Symbol.dispose]()
    const broken = await brokenInvariants(t.sql, t.profile)
    await t[Symbol.asyncDispose]()
    expect(broken).toEqual([])
  })

  const clear = (): Promise<unknown> => t.sql.unsafe(`truncate ${t.quoted} cascade`)
  const lastEvent = async (id: string): Promise<unknown> => (await t.events(id)).at(-1)

  test('retry raises the maximum, never lowers the attempts, and tells who and why', async () => {
    const id = await t.put(FAILED)
    const answer = await cli('retry', id, ...WHY)
    expect(answer.code).toBe(0)
    expect(answer.rows).toEqual([[id, table, 'queued', '3 of 4', expect.stringMatching(/^due \d s ago$/)]])
    expect(await t.read(id)).toMatchObject({ status: 'queued', attempts: 3, maxAttempts: 4 })
    const details = { actor: expect.stringMatching(/^ada@./), reason: 'the disk was full' }
    expect(await lastEvent(id)).toMatchObject({ type: t.profile.events?.names.operatorRetry ?? '', details })
    const claimed = await leases.claimJob(id, 'host-2-bbbb', 60)
    expect(claimed.ok && claimed.value.lease.attempt).toBe(4)
  })

  test('--actor says who it was instead', async () => {
    const id = await t.put(FAILED)
    await cli('retry', id, ...WHY, '--actor', 'deploy bot')
    expect(await lastEvent(id)).toMatchObject({ details: { actor: 'deploy bot' } })
  })

  test('without a reason, or with the dots of an example, nothing is done', async () => {
    const id = await t.put(FAILED)
    for (const reason of [[], ['--reason', '...'], ['--reason', ' … ']]) {
      const answer = await cli('retry', id, ...reason)
      expect(answer.code).toBe(2)
      expect(answer.stderr).toContain('say why with --reason')
    }
    expect(await t.read(id)).toMatchObject({ status: 'failed', maxAttempts: 3 })
  })

  test('a job that is not as it was seen is left alone', async () => {
    const id = await t.put(FAILED)
    await cli('retry', id, ...WHY)
    const claimed = await leases.claimJob(id, 'host-2-bbbb', 60)
    if (!claimed.ok) throw new Error(claimed.error)
    for (const [action, seen] of [
      ['cancel', 'failed:3'],
      ['cancel', 'processing:3'],
      ['end-lease', 'processing:3'],
      ['retry', 'failed:3'],
    ] as const) {
      const answer = await cli(action, id, '--seen', seen, ...WHY)
      expect([action, answer.code, answer.stdout]).toEqual([action, 1, ''])
      expect(answer.stderr).toContain('now it is processing at attempt 4')
    }
    expect((await leases.finishJob(claimed.value.lease, true)).ok).toBe(true)
  })

  test('the command that explain prints for a running job is void once it is another attempt', async () => {
    const id = await t.put({ status: 'queued', maxAttempts: '5' })
    const claimed = await leases.claimJob(id, 'host-1-aaaa', 60)
    if (!claimed.ok) throw new Error(claimed.error)
    const printed = commandIn((await cli('explain', id)).stdout, 'end-lease').map((word) =>
      word === '...' ? 'the host is gone' : word,
    )
    await leases.finishJob(claimed.value.lease, false, { code: 'NETWORK' })
    await t.change(id, { nextRunAt: 'now()' })
    await leases.claimJob(id, 'host-3-cccc', 60)
    expect((await cli(...printed)).code).toBe(1)
    expect(await t.read(id)).toMatchObject({ status: 'processing', holder: 'host-3-cccc' })
    const again = printed.map((word) => (word === 'processing:1' ? 'processing:2' : word))
    expect((await cli(...again)).code).toBe(0)
    expect(await t.read(id)).toMatchObject({ status: 'queued', holder: null, attempts: 2 })
  })

  test('what is running is not retried, and what is done is not cancelled', async () => {
    const [held, done] = [await t.put(HELD), await t.put({ status: 'done', attempts: '1' })]
    const retried = await cli('retry', held, ...WHY)
    expect([retried.code, retried.stderr]).toEqual([
      1,
      expect.stringContaining('cannot be retried: held by host-1-aaaa'),
    ])
    const cancelled = await cli('cancel', done, ...WHY, '--json')
    expect(cancelled.code).toBe(1)
    expect(cancelled.json()).toMatchObject({
      version: 1,
      action: 'cancel',
      done: [],
      refused: [{ id: done, code: 'NOT_ALLOWED' }],
    })
    expect([(await t.read(held)).status, (await t.read(done)).status]).toEqual(['processing', 'done'])
  })

  test('cancel takes a running job from its worker, whose finish is refused', async () => {
    const id = await t.put({ status: 'queued' })
    const claimed = await leases.claimJob(id, 'host-2-bbbb', 60)
    if (!claimed.ok) throw new Error(claimed.error)
    const answer = await cli('cancel', id, ...WHY)
    expect([answer.code, answer.rows]).toEqual([0, [[id, table, 'failed', expect.stringMatching(/^1 of \d$/), '']]])
    expect(await t.read(id)).toMatchObject({ status: 'failed', holder: null, failCode: 'cancelled' })
    expect(await leases.finishJob(claimed.value.lease, true)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
  })

  test('several ids are done one by one; one that is nowhere costs the others nothing', async () => {
    const [one, two] = [await t.put(FAILED), await t.put(FAILED)]
    const answer = await cli('retry', one, '987654321', two, ...WHY)
    expect(answer.code).toBe(1)
    expect(answer.rows.map(([id]) => id)).toEqual([one, two])
    expect(answer.stderr).toContain('987654321')
    const nowhere = await cli('retry', '987654321', 'no such id', ...WHY)
    expect([nowhere.code, nowhere.stdout]).toEqual([5, ''])
  })

  test('all that match are only counted; --yes, as the answer says, does it', async () => {
    await clear()
    const disk = await Promise.all([1, 2, 3].map(() => t.put(FAILED)))
    const other = await t.put({ ...FAILED, failCode: `'CODEC'` })
    const running = await t.put(HELD)
    const first = await cli('retry', '--code', 'DISK', ...WHY)
    expect([first.code, first.stdout]).toEqual([2, ''])
    expect(first.stderr).toContain(`3 failed jobs in ${table} match. Nothing was done`)
    expect((await t.read(disk[0] ?? '')).status).toBe('failed')
    const json = await cli('retry', '--code', 'DISK', ...WHY, '--json')
    expect(json.json()).toEqual({ version: 1, action: 'retry', table, matched: 3, moved: 0, refused: [] })
    const second = await cli(...commandIn(first.stderr, 'retry'))
    expect([second.code, second.stdout]).toEqual([0, `retried 3 of 3 failed jobs in ${table}\n`])
    for (const id of disk) expect(await t.read(id)).toMatchObject({ status: 'queued', attempts: 3, maxAttempts: 4 })
    expect([(await t.read(other)).status, (await t.read(running)).status]).toEqual(['failed', 'processing'])
    const third = await cli('retry', '--code', 'DISK', ...WHY, '--yes')
    expect([third.code, third.stderr]).toEqual([5, expect.stringContaining('matches')])
    const cancelled = await cli('cancel', '--table', table, ...WHY, '--yes', '--json')
    expect(cancelled.json()).toEqual({ version: 1, action: 'cancel', table, matched: 3, moved: 3, refused: [] })
    expect((await t.read(running)).status).toBe('processing')
  })

  test('all of one holder are counted, and done, without those of another', async () => {
    await clear()
    // A worker of the team's own may leave its name behind when it fails a job.
    const [mine, other] = [
      await t.put({ ...FAILED, holder: `'host-1-aaaa'` }),
      await t.put({ ...FAILED, holder: `'host-2-bbbb'` }),
    ]
    const counted = await cli('retry', '--holder', 'host-1-aaaa', ...WHY)
    expect([counted.code, counted.stderr]).toEqual([2, expect.stringContaining(`1 failed job in ${table} match`)])
    const done = await cli(...commandIn(counted.stderr, 'retry'))
    expect([done.code, done.stdout]).toEqual([0, `retried 1 of 1 failed job in ${table}\n`])
    expect([(await t.read(mine)).status, (await t.read(other)).status]).toEqual(['queued', 'failed'])
    await cli('retry', other, ...WHY)
  })

  test('a row that a trigger of the team refuses is named, and the others are done', async () => {
    await clear()
    const ids = await Promise.all([1, 2, 3].map(() => t.put(FAILED)))
    const idColumn = `"${t.profile.columns.id}"`
    await t.sql
      .unsafe(
        `create function no_way() returns trigger language plpgsql as $$ begin raise exception 'not this one'; end $$;
        create trigger no_way before update on ${t.quoted} for each row when (old.${idColumn}::text = '${ids[1] ?? ''}') execute function no_way();`,
      )
      .simple()
    const answer = await cli('retry', '--code', 'DISK', ...WHY, '--yes', '--json')
    expect(answer.code).toBe(1)
    expect(answer.json()).toMatchObject({ matched: 3, moved: 2, refused: [{ id: ids[1] }] })
    const byId = await cli('retry', ids[1] ?? '', ...WHY)
    expect([byId.code, byId.stderr]).toEqual([1, expect.stringContaining('not this one')])
    await t.sql.unsafe(`drop function no_way cascade`)
  })
})

describe('an id that stands in two tables', () => {
  test('is shown from both, and acted upon only in the one that is named', async () => {
    await using t = await freshDatabase()
    const env = { DATABASE_URL: t.url }
    const id = await insertJob(t.sql, 'jobs', { status: `'failed'`, attempt_count: '3', max_attempts: '3' })
    await insertJob(t.sql, 'asr_jobs', { id: `'${id}'`, ...OUR_HELD })
    const explained = await runCli(['explain', id], env)
    expect(explained.stdout).toContain(`jobs › ${id}`)
    expect(explained.stdout).toContain(`asr_jobs › ${id}`)
    expect(commandIn(explained.stdout, 'retry')).toContain('--table')
    for (const args of [
      ['retry', id, ...WHY],
      ['events', id, '--follow'],
    ]) {
      const answer = await runCli(args, env)
      expect(answer.code).toBe(2)
      expect(answer.stderr).toContain('stands in jobs and in asr_jobs: say which with --table')
    }
    expect((await runCli(['retry', id, '--table', 'jobs', ...WHY], env)).code).toBe(0)
    expect((await readJob(t.sql, 'asr_jobs', id)).status).toBe('processing')
    expect((await readJob(t.sql, 'jobs', id)).status).toBe('queued')
  })

  test('keeps those before it from being done: it is found out first', async () => {
    await using t = await freshDatabase()
    const one = await insertJob(t.sql, 'jobs', FAILED_ROW)
    const both = await insertJob(t.sql, 'jobs', FAILED_ROW)
    await insertJob(t.sql, 'asr_jobs', { id: `'${both}'`, ...FAILED_ROW })
    const answer = await runCli(['retry', one, both, ...WHY], { DATABASE_URL: t.url })
    expect([answer.code, answer.stderr]).toEqual([2, expect.stringContaining('say which with --table')])
    expect((await readJob(t.sql, 'jobs', one)).status).toBe('failed')
  })
})

test('when the database does not answer for one of several ids, what was done before it is told', async () => {
  await using t = await freshDatabase()
  const ids = await Promise.all(Array.from({ length: 5 }, () => insertJob(t.sql, 'jobs', FAILED_ROW)))
  const [one = '', two = '', third = ''] = ids
  const [locked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const locker = t.sql.begin(async (host) => {
    await host`select from jobs where id::text = ${third} for update`
    locked.resolve()
    await release.promise
  })
  await locked.promise
  const env = { DATABASE_URL: t.url, QUERY_TIMEOUT_SEC: '1', REAPER_TABLES: 'jobs' }
  const answer = await runCli(['retry', ...ids, ...WHY], env)
  const json = await runCli(['retry', two, third, ...WHY, '--json'], env)
  release.resolve()
  await locker
  expect([answer.code, answer.rows.map(([id]) => id)]).toEqual([4, [one, two]])
  expect(answer.stderr).toContain(`${third}: what became of it is not known; 2 after it were not tried`)
  expect(answer.stderr).toContain('the database took too long')
  expect([json.code, json.json()]).toMatchObject([4, { done: [{ id: two }], refused: [] }])
})

test('what is retried is offered through pg-boss, where workers are fed by it', async () => {
  await using t = await freshDatabase()
  const id = await insertJob(t.sql, 'jobs', { status: `'failed'`, attempt_count: '3', max_attempts: '3' })
  const answer = await runCli(['retry', id, '--table', 'jobs', ...WHY], {
    DATABASE_URL: t.url,
    QUEUE_PROVIDER: 'pgboss',
  })
  expect([answer.code, answer.stderr.replace(WAITING, '')]).toEqual([0, ''])
  expect(await t.sql`select data ->> 'id' as id from pgboss.job`).toMatchObject([{ id }])
})

describe('a bulk action', () => {
  test('that is stopped half-way says how far it came, and leaves whole batches', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 8000, { status: `'failed'`, attempt_count: '3', max_attempts: '3' })
    // Slow enough to be caught in the middle of eight seconds, and each batch quick enough to end in its grace.
    await slowDown(t.sql, '0.5')
    const child = spawnCli(['retry', '--table', 'jobs', ...WHY, '--yes'], { DATABASE_URL: t.url })
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const ended = new Promise((done) => child.once('close', done))
    await eventually(() => stderr.includes('retried '), { what: 'progress' })
    child.kill('SIGINT')
    expect(await ended).toBe(130)
    const told = Number(/Stopped: retried (\d+) of 8000/.exec(stderr)?.[1])
    const [row] = await t.sql`select count(*)::int as queued from jobs where status = 'queued'`
    expect(told).toBe(row?.queued as number)
    expect(told).toBeLessThan(8000)
    expect(told % 500).toBe(0)
  })

  test('whose batch does not end in its grace says how far it had come', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 1500, { status: `'failed'`, attempt_count: '3', max_attempts: '3' })
    await t.sql`create sequence batch`
    await slowDown(t.sql, `case nextval('batch') when 1 then 1.1 else 9 end`)
    const child = spawnCli(['retry', '--table', 'jobs', ...WHY, '--yes'], { DATABASE_URL: t.url })
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const ended = new Promise((done) => child.once('close', done))
    await eventually(() => stderr.includes('retried 500'), { what: 'the first batch' })
    child.kill('SIGINT')
    expect(await ended).toBe(130)
    expect(stderr).toContain('Stopped: retried 500 of 1500; what becomes of the batch under way is not known.')
  })

  test('stops when many rows are refused, and says why', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 600, { status: `'failed'`, attempt_count: '3', max_attempts: '3' })
    await t.sql
      .unsafe(
        `create function no_way() returns trigger language plpgsql as $$ begin raise exception 'none of these'; end $$;
        create trigger no_way before update on jobs for each row execute function no_way();`,
      )
      .simple()
    const answer = await runCli(['retry', '--table', 'jobs', ...WHY, '--yes'], { DATABASE_URL: t.url })
    expect([answer.code, answer.stdout]).toEqual([1, 'retried 0 of 600 failed jobs in jobs\n'])
    expect(answer.stderr).toContain('Stopped after 20 refusals: that is hardly the rows. 580 were not moved.')
  })

  test('moves what ran out of time with reap --once, by its rules', async () => {
    await using t = await freshDatabase()
    await insertMany(t.sql, 'jobs', 2500, { ...EXPIRED, last_heartbeat_at: 'now()' })
    const answer = await runCli(['reap', '--once', '--json'], { DATABASE_URL: t.url, REAPER_BATCH_SIZE: '1000' })
    expect(answer.code).toBe(0)
    const { jobs } = answer.json() as { jobs: object[] }
    expect(jobs).toHaveLength(2500)
  })
})

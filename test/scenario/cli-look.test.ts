/** What `leasehold` shows of a team's tables: as real processes, on real tables, in the words of docs/cli.md. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import type { JobView } from '../../src/db/job-view.ts'
import type { JobDetails } from '../../src/operator/operator.ts'
import { createLeases, type Leases } from '../../src/worker/lease.ts'
import { type Answer, type Cli, cliFor, commandIn, spawnCli } from '../support/cli.ts'
import { eventually } from '../support/eventually.ts'
import { type CanonicalColumns, TEAMS, type TeamDatabase, teamDatabase } from '../support/profiles.ts'
import { brokenInvariants } from '../support/witness.ts'

const HELD: CanonicalColumns = {
  status: 'processing',
  holder: `'host-4711-k3f9'`,
  attempts: '2',
  maxAttempts: '3',
  stage: `'clip'`,
  leaseExpiresAt: `now() + interval '56 seconds'`,
  heartbeatAt: `now() - interval '4 seconds'`,
  startedAt: `now() - interval '3 minutes'`,
}
/** It beat a moment ago, so that no restart of the tests' server is a reason to spare it. */
const OVER: CanonicalColumns = { ...HELD, leaseExpiresAt: `now() - interval '1 minute'`, heartbeatAt: 'now()' }
const FAILED: CanonicalColumns = {
  status: 'failed',
  attempts: '3',
  maxAttempts: '3',
  stage: `'clip'`,
  failCode: `'DISK'`,
  failReason: `'no space left'`,
}

/** Said on a machine that is busy with other things, and beside the point then. */
const WAITING = /^.*waiting for the database.*\n/gm

describe.each(TEAMS.filter((_, at) => at === 1 || at === 3))('$title', (team) => {
  let t: TeamDatabase
  let cli: Cli
  let env: Record<string, string>
  let leases: Leases
  let table: string
  let folder: Disposable

  beforeAll(async () => {
    t = await teamDatabase(team)
    const made = cliFor(t, [team.entry])
    ;({ cli, env } = made)
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
  const ids = (answer: Answer): string[] => answer.rows.map(([id = '']) => id)

  test('status says in one sentence that all is well, and ends with 0', async () => {
    await clear()
    await t.put({ status: 'queued' })
    await t.put(HELD)
    const answer = await cli('status')
    expect(answer.code).toBe(0)
    expect(answer.stdout.split('\n')[0]).toBe('Nothing is stuck: 1 running, 1 due.')
    const { health, tables } = (await cli('status', '--json')).json() as {
      health: { level: string }
      tables: { table: string; processing: number; due: number }[]
    }
    expect(health.level).toBe('ok')
    expect(tables).toMatchObject([{ table, processing: 1, due: 1 }])
  })

  test('status ends with 1 when a job is past its deadline and nobody takes it, and says where to look', async () => {
    await clear()
    await t.put(OVER)
    const answer = await cli('status')
    expect(answer.code).toBe(1)
    expect(answer.stdout.split('\n')[0]).toContain(`${table}: 1 running job past its deadline`)
    expect(answer.stderr).toContain('leasehold leases')
    expect((await cli('status', '--json')).code).toBe(1)
  })

  test('list shows what matches, and its pages show every job once', async () => {
    await clear()
    const all: string[] = []
    for (let made = 0; made < 7; made += 1) all.push(await t.put({ status: 'queued', stage: `'clip'` }))
    const failed = await t.put(FAILED)
    expect(ids(await cli('list', '--status', 'failed', '--code', 'DISK'))).toEqual([failed])
    expect(ids(await cli('list', '--status', 'failed', '--stage', ''))).toEqual([])
    // The team's own word for it is as good.
    expect(ids(await cli('list', '--status', t.profile.statuses.failed))).toEqual([failed])
    const seen: string[] = []
    let command = ['list', '--status', 'queued', '--stage', 'clip', '--limit', '3']
    while (command.length > 0) {
      const page = await cli(...command)
      expect(page.code).toBe(0)
      seen.push(...ids(page))
      command = commandIn(page.stderr, 'list')
    }
    expect(seen.toSorted()).toEqual(all.toSorted())
    const { tables } = (await cli('list', '--limit', '2', '--json')).json() as {
      tables: { table: string; jobs: JobView[]; next: string }[]
    }
    expect(tables).toMatchObject([{ table, jobs: [{}, {}], next: tables[0]?.jobs[1]?.id ?? '' }])
  })

  test('leases come in the order in which they are reaped, each with the time it has left', async () => {
    await clear()
    const later = await t.put(HELD)
    const over = await t.put({ ...OVER, attempts: '3' })
    const ageless = await t.put({ ...HELD, leaseExpiresAt: 'null', heartbeatAt: `now() - interval '10 seconds'` })
    const answer = await cli('leases')
    expect(ids(answer)).toEqual([over, ageless, later])
    const [first = [], second = [], third = []] = answer.rows
    expect(first.join(' ')).toMatch(/over for 1 min.* fails/)
    expect(second.join(' ')).toContain('(no lease)')
    expect(third.join(' ')).toMatch(/host-4711-k3f9 2 of 3 5\d s left again/)
    expect(ids(await cli('leases', '--holder', 'somebody-else'))).toEqual([])
    const told = (await cli('leases', '--json')).json() as { leases: JobView[] }
    expect(told.leases.map(({ id }) => id)).toEqual([over, ageless, later])
  })

  test('failures are grouped, and the commands below them show and retry the largest group', async () => {
    await clear()
    const disk = [await t.put(FAILED), await t.put(FAILED)]
    await t.put({ ...FAILED, failCode: 'null', failReason: 'null', stage: 'null' })
    const answer = await cli('failures')
    expect(answer.rows).toEqual([
      ['2', table, 'DISK', 'clip'],
      ['1', table, '(none)', ''],
    ])
    expect(ids(await cli(...commandIn(answer.stderr, 'list'))).toSorted()).toEqual(disk.toSorted())
    const retry = commandIn(answer.stderr, 'retry').map((word) => (word === '...' ? 'there is space again' : word))
    expect((await cli(...retry)).stderr).toContain(`2 failed jobs in ${table} match`)
    expect((await cli(...retry, '--yes')).stdout).toContain('retried 2 of 2')
    expect((await t.read(disk[0] ?? '')).status).toBe('queued')
  })

  test('workers are those who hold something, with the time since they were last heard of', async () => {
    await clear()
    await t.put(HELD)
    await t.put({ ...HELD, holder: `'host-8-silent'`, heartbeatAt: `now() - interval '2 minutes'` })
    const answer = await cli('workers')
    expect(answer.rows.map(([holder = '']) => holder).toSorted()).toEqual(['host-4711-k3f9', 'host-8-silent'])
    expect(answer.rows.find(([holder]) => holder === 'host-8-silent')?.join(' ')).toContain('2 min')
    const { tables } = (await cli('workers', '--json')).json() as { tables: { table: string; holders: object[] }[] }
    expect(tables).toMatchObject([{ table, holders: [{}, {}] }])
  })

  test('explain says who holds a job, what happens next, and by which rule', async () => {
    await clear()
    const answer = await cli('explain', await t.put(HELD))
    expect(answer.code).toBe(0)
    expect(answer.stdout).toMatch(
      /held by host-4711-k3f9, attempt 2 of 3, last heartbeat \d s ago, lease ends in 5\d s/,
    )
    expect(answer.stdout).toMatch(/if nothing happens it is requeued at \d\d:\d\d:\d\d UTC \(lease_expired/)
  })

  test('the command that explain prints for a failed job runs it again', async () => {
    await clear()
    const id = await t.put(FAILED)
    const answer = await cli('explain', id)
    expect(answer.stdout).toContain('DISK (no space left)')
    const command = commandIn(answer.stdout, 'retry').map((word) => (word === '...' ? 'the disk is empty' : word))
    expect((await cli(...command)).code).toBe(0)
    expect(await t.read(id)).toMatchObject({ status: 'queued', attempts: 3, maxAttempts: 4 })
  })

  test('explain has the attempts, the events and the columns of a job', async () => {
    await clear()
    const id = await t.put({ status: 'queued' })
    const claimed = await leases.claimJob(id, 'host-1-aaaa', 60)
    if (!claimed.ok) throw new Error(claimed.error)
    await leases.finishJob(claimed.value.lease, false, { code: 'VALIDATION', reason: 'no such codec' })
    const text = (await cli('explain', id, '--fields')).stdout
    expect(text).toMatch(/\n1\thost-1-aaaa\t.*\tVALIDATION\tno such codec\n/)
    expect(text).toContain(`${t.profile.columns.status}: ${t.profile.statuses.failed}`)
    const { jobs } = (await cli('explain', id, '--json')).json() as { jobs: JobDetails[] }
    expect(jobs).toMatchObject([{ job: { id, status: 'failed' }, attempts: [{ attempt: 1, code: 'VALIDATION' }] }])
  })

  test('events --follow tells what happens as it happens, and ends when the job does', async () => {
    await clear()
    const id = await t.put({ status: 'queued' })
    const following = spawnCli(['events', id, '--follow', '--json'], env)
    let text = ''
    following.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()))
    const ended = new Promise((done) => following.once('close', done))
    const claimed = await leases.claimJob(id, 'host-1-aaaa', 60)
    if (!claimed.ok) throw new Error(claimed.error)
    await eventually(() => text.includes('"processing"'), { what: 'the claim to be told' })
    await leases.finishJob(claimed.value.lease, true)
    expect(await ended).toBe(0)
    const told = text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { version: number; table: string; id: string; type: string })
    const names = t.profile.events?.names
    expect(told).toMatchObject([
      { version: 1, table, id, type: names?.processing ?? '' },
      { version: 1, table, id, type: names?.done ?? '' },
    ])
    expect((await cli('events', id)).rows.map(([, , type]) => type)).toEqual(told.map(({ type }) => type))
  })

  test('a job that is nowhere is said to be nowhere, and the answer is 5', async () => {
    for (const args of [
      ['explain', '424242'],
      ['events', '424242'],
      ['events', 'no such id', '--follow'],
    ]) {
      const answer = await cli(...args)
      expect([answer.code, answer.stdout]).toEqual([5, ''])
      expect(answer.stderr).toContain(`There is no job ${args[1] ?? ''} in ${table}`)
    }
    const json = await cli('explain', '424242', '--json')
    expect([json.code, json.json()]).toMatchObject([5, { jobs: [] }])
  })

  test('reap --once --dry-run shows what a pass would do and does nothing; without it the same is done', async () => {
    await clear()
    const [again, last] = [await t.put(OVER), await t.put({ ...OVER, attempts: '3' })]
    await t.put(HELD)
    const dry = await cli('reap', '--once', '--dry-run')
    const outcomes = (answer: Answer): Record<string, string | undefined> =>
      Object.fromEntries(answer.rows.map(([id, , outcome]) => [id, outcome]))
    expect(outcomes(dry)).toEqual({ [again]: 'requeued', [last]: 'failed' })
    expect(dry.stderr).toContain('1 would be requeued, 1 would be failed')
    expect((await t.read(again)).status).toBe('processing')
    expect(outcomes(await cli('reap', '--once', '--table', table))).toEqual(outcomes(dry))
    expect([(await t.read(again)).status, (await t.read(last)).status]).toEqual(['queued', 'failed'])
    const nothing = await cli('reap', '--once', '--json')
    expect(nothing.json()).toEqual({ version: 1, isDryRun: false, jobs: [], setAside: [], refused: [] })
  })

  test('drain --plan says what a deploy would interrupt', async () => {
    await clear()
    const NOTHING = 'A deploy interrupts nothing: no job is running that has time left.\n'
    expect((await cli('drain', '--plan')).stdout).toBe(NOTHING)
    await t.put(OVER)
    expect((await cli('drain', '--plan')).stdout).toBe(NOTHING)
    const id = await t.put(HELD)
    const answer = await cli('drain', '--plan')
    expect(answer.stdout).toContain('0 of 1 running jobs finish within 25 s')
    expect(answer.stdout).toContain(`${id}\t${table}\tclip\thost-4711-k3f9\t3 min`)
    const { jobs } = (await cli('drain', '--plan', '--timeout', '0', '--json')).json() as { jobs: object[] }
    expect(jobs).toMatchObject([{ id, table }])
  })

  test('drain --plan counts all jobs, and says when it shows only some', async () => {
    await clear()
    await Promise.all(Array.from({ length: 505 }, () => t.put(HELD)))
    const { stdout, stderr } = await cli('drain', '--plan')
    expect(stdout).toMatch(/^0 of 505 running jobs finish within 25 s, .*of 505 nothing tells/)
    expect(stdout.trim().split('\n')).toHaveLength(1 + 1 + 500)
    expect(stderr).toContain('These are the 500 that need longest, of 505.')
  })

  test('the doctor finds it fit, and migrate finds nothing to do but functions', async () => {
    expect((await cli('doctor')).stdout).toContain(`Fit: ${table}.`)
    const plan = await cli('migrate', '--print', '--json')
    const { statements } = plan.json() as { statements: string[] }
    expect(statements.filter((sql) => /^(alter|create (table|index))/.test(sql))).toEqual([])
  })
})

test('one table that cannot be used hides none of the others, and is named', async () => {
  const [snake, , , , orphan] = TEAMS
  if (!snake || !orphan) throw new Error('no teams')
  await using t = await teamDatabase(orphan)
  using both = cliFor(t, [orphan.entry, { table: 'jobs' }])
  const id = await t.put({ status: 'processing', startedAt: 'now()' })
  for (const args of [['leases'], ['list'], ['explain', id], ['workers']]) {
    const answer = await both.cli(...args)
    expect(answer.stdout).toContain(args[0] === 'workers' ? '(nobody known)' : id)
    // The job that was asked for has been found: nothing is missing from that answer.
    if (args[0] === 'explain') {
      expect([answer.code, answer.stderr.replace(WAITING, '')]).toEqual([0, ''])
      continue
    }
    expect([args, answer.code]).toEqual([args, 1])
    expect(answer.stderr).toContain('there is no table jobs')
    expect(answer.stderr).toContain('leasehold doctor')
  }
  const nowhere = await both.cli('explain', '424242')
  expect([nowhere.code, nowhere.stderr]).toEqual([1, expect.stringContaining('there is no table jobs')])
  const status = await both.cli('status', '--json')
  expect(status.code).toBe(1)
  const { refused } = (await both.cli('leases', '--json')).json() as { refused: object[] }
  expect(refused).toMatchObject([{ table: 'jobs' }])
})

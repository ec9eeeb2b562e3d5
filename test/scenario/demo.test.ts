/** The demo as somebody sees it who has just cloned us; and whether its score would notice if we were lying. */
import { describe, expect, test } from 'bun:test'
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'

import type { Database } from '../../src/db/client.ts'
import { admit, installWitness, readRecord, readStandings, type Sighting } from '../../src/db/witness.ts'
import { ledgerOf } from '../../src/demo/ledger.ts'
import { type Deed, type Score, scoreOf } from '../../src/demo/score.ts'
import { createLeases, type Lease, type Leases } from '../../src/worker/lease.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { openFolder } from '../support/open-folder.ts'
import { ROOT } from '../support/program.ts'
import { testFolder } from '../support/test-folder.ts'
import { brokenInvariants } from '../support/witness.ts'

/** Where processes can be looked at through /proc. */
const IS_LINUX = process.platform === 'linux'

interface RunningDemo extends AsyncDisposable {
  /** The demo's temporary folder is in here. */
  folder: string
  story(): string
  answer(): string
  kill(signal: NodeJS.Signals): void
  ended: Promise<number | null>
}

/** In a temporary folder of the test's own, so that whatever it leaves behind can be found. */
function startDemo(...args: string[]): RunningDemo {
  const folder = openFolder('demo-test')
  const child = spawn(process.execPath, ['--no-env-file', join(ROOT, 'scripts', 'demo.ts'), ...args], {
    cwd: ROOT,
    // Settings of the person at the keyboard have no say in it.
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      TMPDIR: folder,
      DATABASE_URL: 'not a url',
      HEARTBEAT_SEC: 'x',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const said = { out: '', err: '' }
  child.stdout.on('data', (chunk: Buffer) => (said.out += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (said.err += chunk.toString()))
  const ended = new Promise<number | null>((done) => child.once('close', done))
  return {
    folder,
    story: () => (args.includes('--json') ? said.err : said.out),
    answer: () => said.out,
    kill: (signal) => child.kill(signal),
    ended,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await ended
      await eventually(() => processesOf(folder).length === 0, { what: 'every process of the demo is gone' })
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** Whoever has the folder in its command or its environment. */
function processesOf(folder: string): string[] {
  if (!IS_LINUX) return []
  const read = (file: string): string => {
    try {
      return readFileSync(file, 'utf8')
    } catch {
      return ''
    }
  }
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
    .filter((pid) => `${read(`/proc/${pid}/cmdline`)}${read(`/proc/${pid}/environ`)}`.includes(folder))
    .map((pid) => `${pid} ${read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ')}`)
}

/** The demo's record as that of the tests' own witness, whose rules know nothing of the demo's score. */
async function judgeByTheTestsWitness(record: readonly Sighting[]): Promise<string[]> {
  await using t = await freshDatabase()
  const rows = record.map(({ atMs, source, ...rest }) => ({
    ...rest,
    at: new Date(atMs).toISOString(),
    source: source === 'job' ? 'jobs' : 'job_events',
  }))
  await t.sql`insert into witness overriding system value
    select * from jsonb_populate_recordset(null::witness, ${t.sql.json(rows as never)})`
  return await brokenInvariants(t.sql)
}

describe('bun run demo', () => {
  test('runs by itself, and its score is what an independent count of the record comes to', async () => {
    using folder = testFolder()
    const recordFile = join(folder.path, 'witness.ndjson')
    await using demo = startDemo('--seconds', '20', '--json', '--record', recordFile)
    const code = await demo.ended
    const story = demo.story()
    expect({ code, story }).toEqual({ code: 0, story })
    const score = JSON.parse(demo.answer()) as Score & { dashboard: string }
    expect(score).toMatchObject({ lost: 0, ranTwiceUnnoticed: 0, unfinished: 0, breaches: [], isProven: true })
    expect(score.done + score.failed).toBe(score.created)
    expect(score.recovered).toBeGreaterThan(0)

    const page = readFileSync(join(ROOT, 'docs', 'demo.md'), 'utf8')
    expect(Object.keys(score).filter((key) => !page.includes(`\`${key}\``))).toEqual([])

    const record = readFileSync(recordFile, 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as Sighting)
    const jobs = record.filter(({ source }) => source === 'job')
    const moves = (from: string, to: string): number =>
      jobs.filter((each) => each.old?.status === from && each.new?.status === to).length
    expect(score.created).toBe(jobs.filter(({ op }) => op === 'INSERT').length)
    expect(score.done).toBe(moves('processing', 'done'))
    expect(score.attempts).toBe(moves('queued', 'processing'))
    expect(score.attemptsLost).toBe(moves('processing', 'queued') + moves('processing', 'failed'))
    expect(await judgeByTheTestsWitness(record)).toEqual([])

    const told = (pattern: RegExp): number => story.match(pattern)?.length ?? 0
    const times = Object.fromEntries(score.deaths.map((death) => [death.kind, death.times]))
    expect(told(/is killed \(SIGKILL\)/g)).toBe(times.crash ?? 0)
    expect(told(/The power goes out under/g)).toBe(times.power ?? 0)
    expect(told(/is frozen \(SIGSTOP\)/g)).toBe(times.freeze ?? 0)
    expect(told(/The database is stopped/g)).toBe(score.database.restarts)
    expect(times).toMatchObject({ crash: expect.any(Number) })
    for (const { requeued, runningAgain, attempts } of score.deaths.filter((death) => death.attempts > 0)) {
      expect(attempts).toBeGreaterThan(0)
      expect(requeued?.medianMs).toBeLessThanOrEqual(runningAgain?.medianMs ?? 0)
      expect(requeued?.medianMs).toBeLessThanOrEqual(requeued?.worstMs ?? 0)
    }
    expect(story).toContain(`Look inside: ${score.dashboard}`)
    expect(readdirSync(demo.folder)).toEqual([])
  }, 120_000)

  test('Ctrl-C ends the day: what was begun is finished, and the score is shown', async () => {
    await using demo = startDemo('--seconds', '300')
    await eventually(() => demo.story().includes('Running again'), { withinMs: 40_000 })
    demo.kill('SIGINT')
    expect(await demo.ended).toBe(0)
    expect(demo.story()).toMatch(/\n +0 {2}lost\n +0 {2}run twice unnoticed\n/)
    expect(demo.story()).toMatch(/1 × worker killed +[1-9]/)
    expect(readdirSync(demo.folder)).toEqual([])
  }, 120_000)

  test('a second Ctrl-C waits for nothing, and still leaves nothing behind', async () => {
    await using demo = startDemo('--seconds', '300')
    await eventually(() => demo.story().includes('Now for a bad day'), { withinMs: 40_000 })
    demo.kill('SIGINT')
    await eventually(() => demo.story().includes('No new clips'))
    demo.kill('SIGINT')
    expect(await demo.ended).toBe(130)
    expect(readdirSync(demo.folder)).toEqual([])
    await eventually(() => processesOf(demo.folder).length === 0)
  }, 90_000)

  test('killed with SIGKILL, it takes everything along: programs, database, folder', async () => {
    await using demo = startDemo('--seconds', '300')
    await eventually(() => demo.story().includes('Now for a bad day'), { withinMs: 40_000 })
    expect(processesOf(demo.folder).length).toBeGreaterThan(8)
    demo.kill('SIGKILL')
    await eventually(() => processesOf(demo.folder).length === 0, { what: 'no process is left' })
    expect(readdirSync(demo.folder)).toEqual([])
  }, 90_000)

  test('an option that makes no sense is refused before anything starts', async () => {
    await using demo = startDemo('--seconds', 'ten', '--json')
    expect(await demo.ended).toBe(2)
    expect(demo.story()).toContain('--seconds: expected a number of seconds, got ten')
    expect(demo.answer()).toBe('')
  })
})

/** A database with the demo's witness in it, and two workers who come under names of their own. */
interface Courtroom extends AsyncDisposable {
  t: TestDatabase
  names: [string, string]
  ada: { db: Database; leases: Leases }
  ben: { db: Database; leases: Leases }
  /** A job that Ada had until its lease ran out, and that Ben has now. */
  handedOver(): Promise<{ id: string; old: Lease; now: Lease }>
  judge(more?: { told?: string[]; whole?: string[]; deeds?: Deed[] }): Promise<Score>
}

async function openCourt(): Promise<Courtroom> {
  const t = await freshDatabase()
  await t.sql`drop table witness`
  await t.sql`drop function witness_change cascade`
  await installWitness(t.db)
  const names: [string, string] = [`Ada ${randomBytes(4).toString('hex')}`, `Ben ${randomBytes(4).toString('hex')}`]
  const cast: Courtroom['ada'][] = []
  for (const name of names) {
    // One after the other: two grants on one table at the same moment are one too many for PostgreSQL.
    const db = t.open({ url: await admit(t.db, t.url, name), poolMax: 1 })
    cast.push({ db, leases: createLeases({ db, table: 'jobs', backoffLadderMs: [1] }) })
  }
  const [ada, ben] = cast as [Courtroom['ada'], Courtroom['ben']]

  const claim = async ({ leases }: Courtroom['ada'], id: string): Promise<Lease> => {
    const claimed = await eventually(async () => {
      const answer = await leases.claimJob(id, `host-${randomBytes(3).toString('hex')}`)
      return answer.ok ? answer.value : null
    })
    return claimed.lease
  }
  return {
    t,
    names,
    ada,
    ben,
    async handedOver() {
      const created = await createLeases({ db: t.db, table: 'jobs' }).enqueueJob({ stage: 'clip' })
      const id = created.ok ? created.value : ''
      const old = await claim(ada, id)
      await t.sql`update jobs set status = 'queued', locked_by = null, lease_expires_at = null where id = ${id}`
      return { id, old, now: await claim(ben, id) }
    },
    async judge({ told = [], whole, deeds = [] } = {}) {
      const ledger = ledgerOf(await readRecord(t.db), names)
      const standings = await readStandings(t.db)
      const all = standings.map(({ id }) => id)
      return scoreOf({ ledger, deeds, told, standings, whole: new Set(whole ?? all) })
    },
    [Symbol.asyncDispose]: () => t[Symbol.asyncDispose](),
  }
}

describe('the score', () => {
  test('a zombie that is held off by the fence costs an attempt and nothing else', async () => {
    await using court = await openCourt()
    const { id, old, now } = await court.handedOver()
    expect((await court.ada.leases.heartbeatJob(old)).ok).toBe(false)
    expect((await court.ada.leases.finishJob(old, true)).ok).toBe(false)
    expect((await court.ben.leases.finishJob(now, true)).ok).toBe(true)
    const score = await court.judge({ told: [id] })
    expect(score).toMatchObject({ created: 1, done: 1, lost: 0, ranTwiceUnnoticed: 0, attempts: 2, attemptsLost: 1 })
    expect(score).toMatchObject({ recovered: 1, breaches: [], isProven: true })
  })

  const SABOTAGE: [string, (court: Courtroom, id: string) => Promise<unknown>][] = [
    [
      'the old attempt finishes after the new one has',
      async ({ ada, ben }, id) => {
        await ben.db.query((sql) => sql`update jobs set status = 'done', locked_by = null where id = ${id}`)
        await ada.db.query((sql) => sql`update jobs set status = 'done' where id = ${id}`)
      },
    ],
    [
      'the old attempt finishes while the new one runs',
      ({ ada }, id) => ada.db.query((sql) => sql`update jobs set status = 'done', locked_by = null where id = ${id}`),
    ],
    [
      'a heartbeat of the old attempt prolongs the lease of the new one',
      ({ ada }, id) =>
        ada.db.query((sql) => sql`update jobs set lease_expires_at = now() + interval '1 min' where id = ${id}`),
    ],
    [
      'a job is taken from a worker that has it',
      ({ ada }, id) =>
        ada.db.query((sql) => sql`update jobs set locked_by = 'thief', attempt_count = 3 where id = ${id}`),
    ],
    [
      'an event of the old attempt is told, by the very worker that has the job now',
      ({ ben }, id) => tell(ben.db, id, 'progress', 1),
    ],
    [
      'two attempts publish',
      async ({ ada, t, ben }, id) => {
        await tell(ben.db, id, 'uploaded', 2)
        await t.sql`update jobs set status = 'queued', locked_by = null where id = ${id}`
        await ada.db.query(
          (sql) => sql`update jobs set status = 'processing', locked_by = 'third', attempt_count = 3 where id = ${id}`,
        )
        await tell(ada.db, id, 'uploaded', 3)
      },
    ],
  ]

  test.each(SABOTAGE)('without a fence it would be noticed: %s', async (_, sabotage) => {
    await using court = await openCourt()
    const { id } = await court.handedOver()
    await sabotage(court, id)
    const score = await court.judge()
    expect(score).toMatchObject({ ranTwiceUnnoticed: 1, lost: 0, isProven: false })
    expect(score.breaches.join()).toContain(id)
  })

  const LOSSES: [string, (court: Courtroom, id: string) => Promise<unknown>, { told?: string[]; whole?: string[] }][] =
    [
      ['a row is deleted', ({ t }, id) => t.sql`delete from jobs where id = ${id}`, {}],
      ['a row gets a status nobody knows', ({ t }, id) => t.sql`update jobs set status = 'gone' where id = ${id}`, {}],
      [
        'a job we were promised never was there',
        () => Promise.resolve(),
        { told: ['00000000-0000-0000-0000-000000000000'] },
      ],
      [
        'a job is done and its clip is not whole',
        ({ t }, id) => t.sql`update jobs set status = 'done', locked_by = null where id = ${id}`,
        { whole: [] },
      ],
    ]

  test.each(LOSSES)('a lost job would be noticed: %s', async (_, lose, facts) => {
    await using court = await openCourt()
    const { id } = await court.handedOver()
    await lose(court, id)
    expect(await court.judge(facts)).toMatchObject({ lost: 1, ranTwiceUnnoticed: 0, isProven: false })
  })

  test('what was never in danger proves nothing', async () => {
    await using court = await openCourt()
    await createLeases({ db: court.t.db, table: 'jobs' }).enqueueJob({ stage: 'clip' })
    const claimed = await court.ben.leases.claimNext({ workerId: 'b', limit: 1 })
    for (const { lease } of claimed.ok ? claimed.value : []) await court.ben.leases.finishJob(lease, true)
    expect(await court.judge()).toMatchObject({ done: 1, recovered: 0, isProven: false })
  })

  test('recovery is counted from the blow: until the job waits again, and until it runs again', async () => {
    await using court = await openCourt()
    const { id, now } = await court.handedOver()
    await court.ben.leases.finishJob(now, true)
    const record = await readRecord(court.t.db)
    const moments = record.filter(({ source }) => source === 'job').map(({ atMs }) => atMs)
    const [, claimed = 0, requeued = 0, again = 0] = moments
    const atMs = (claimed + requeued) / 2
    const crash: Deed = { kind: 'crash', atMs, victim: court.names[0] }
    const restart: Deed = { kind: 'database', atMs: again + 0.001, downMs: 700 }
    const score = await court.judge({ told: [id], deeds: [crash, restart] })
    const spread = (ms: number): object => ({ medianMs: Math.round(ms), worstMs: Math.round(ms) })
    expect(score.deaths).toEqual([
      { kind: 'crash', times: 1, attempts: 1, requeued: spread(requeued - atMs), runningAgain: spread(again - atMs) },
    ] as never)
    expect(score.database).toEqual({ restarts: 1, worstDownMs: 700, attemptsRunning: 1, attemptsLost: 0 })
  })
})

function tell(db: Database, id: string, type: string, attempt: number): Promise<unknown> {
  const data = { type, table: 'jobs', details: { attempt }, at: '' }
  return db.query((sql) => sql`insert into job_events (job_id, data) values (${id}, ${sql.json(data)})`)
}

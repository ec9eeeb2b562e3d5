/** Whatever stands in a team's rows, and however many there are: `leasehold` prints it harmlessly, whole JSON, and promptly. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import type { JobView } from '../../src/db/job-view.ts'
import type { JobDetails } from '../../src/operator/operator.ts'
import { type Answer, type Cli, cliFor, runCli } from '../support/cli.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { ROOT } from '../support/program.ts'
import { EXPIRED, insertMany } from '../support/rows.ts'

/** Paints, clears, renames the window, rings, breaks the line, turns the text around; as 7-bit and as 8-bit sequences. */
const HOSTILE =
  '\u001B[31mred\u001B[2J\u001B]0;pwned\u0007\r\n\tnext\u009B2J\u202Eeman\u2066 \u200B\u2028<script>alert(1)</script> \'";drop--日本'
const HUGE = `${HOSTILE} ${'x'.repeat(5_000_000)}`
/** What must never come out as it is: everything that is no printed letter, but for new lines and the tabs between cells. */
const HARMFUL = /[^\P{Cc}\n\t]|[\p{Zl}\u200B\u200E\u200F\u202A-\u202E\u2066-\u2069]/u

/** Our own paint: a few styles, each on one cell. */
const PAINT = new RegExp(String.raw`\x1B\[(1|2|22|31|32|33|39)m`, 'g')

/** An id and a holder of text, status words and events of the team's own. */
const DDL = `
  create table "Odd" (id text primary key, status text not null default 'queued', stage text, locked_by text, lease_expires_at timestamptz,
    last_heartbeat_at timestamptz, attempt_count int, max_attempts int, next_earliest_run_at timestamptz, fail_code text, fail_reason text,
    processing_started_at timestamptz, progress int, created_at timestamptz default now(), note text);
  create table odd_events (id bigserial primary key, job_id text not null, data jsonb not null);`
const ENTRY = { table: 'Odd', columns: { expectedDurationMs: null }, updatedAt: null, events: { table: 'odd_events' } }

let t: TestDatabase
let cli: Cli
let env: Record<string, string>
let folder: Disposable

beforeAll(async () => {
  t = await freshDatabase()
  await t.sql.unsafe(DDL).simple()
  const made = cliFor(t, [ENTRY])
  ;({ cli, env } = made)
  folder = made
  const row = { stage: HOSTILE, locked_by: HOSTILE, attempt_count: 1, max_attempts: 3, note: HOSTILE }
  await t.sql`insert into "Odd" ${t.sql({ id: `${HOSTILE}1`, status: 'processing', ...row })}`
  await t.sql`insert into "Odd" ${t.sql({ id: `${HOSTILE}2`, status: 'failed', ...row, locked_by: null, fail_code: HOSTILE, fail_reason: HUGE, note: HUGE })}`
  await t.sql`insert into "Odd" ${t.sql({ id: `${HOSTILE}3`, status: HOSTILE, ...row })}`
  await t.sql`insert into "Odd" ${t.sql({ id: `-${HOSTILE}`, status: 'queued', ...row, locked_by: null })}`
  for (const type of [HOSTILE, 'operator:retry']) {
    for (const details of [
      { [HOSTILE]: HOSTILE, attempt: 1, holder: HOSTILE, reason: HOSTILE },
      HOSTILE,
      { reason: HUGE },
    ]) {
      await t.sql`insert into odd_events (job_id, data) values (${`${HOSTILE}2`}, ${t.sql.json({ type, at: HOSTILE, details })})`
    }
  }
})
afterAll(async () => {
  folder[Symbol.dispose]()
  await t[Symbol.asyncDispose]()
})

const READS: string[][] = [
  ['status'],
  ['leases'],
  ['list'],
  ['failures'],
  ['workers'],
  ['explain', `${HOSTILE}1`, '--fields'],
  ['explain', `${HOSTILE}2`, '--fields'],
  ['explain', `${HOSTILE}3`],
  ['explain', '--', `-${HOSTILE}`],
  ['explain', `${HOSTILE} not there`],
  ['events', `${HOSTILE}2`],
  ['reap', '--once', '--dry-run'],
  ['drain', '--plan'],
  ['list', '--table', HOSTILE],
  ['list', '--status', HOSTILE],
  [HOSTILE],
  ['retry', `${HOSTILE}3`, '--reason', HOSTILE],
  ['doctor'],
  ['attach', 'Odd'],
]
const named = (args: string[]): string => JSON.stringify(args).replaceAll(/\\?[^\w\s[\]",-]+/g, '')

function expectHarmless({ stdout, stderr }: Pick<Answer, 'stdout' | 'stderr'>): void {
  expect(HARMFUL.exec(stdout)?.[0]).toBeUndefined()
  expect(HARMFUL.exec(stderr)?.[0]).toBeUndefined()
  expect(stdout.length + stderr.length).toBeLessThan(100_000)
}

describe('hostile text in every column', () => {
  test.each(READS.map((args) => [named(args), args] as const))('is harmless in %s', async (_, args) => {
    expectHarmless(await cli(...args))
  })

  test.each(READS.map((args) => [named(args), args] as const))('is valid and harmless JSON in %s', async (_, args) => {
    const [first = '', ...rest] = args
    const answer = await cli(first, '--json', ...rest)
    expectHarmless(answer)
    const texts = args[0] === 'events' ? answer.stdout.trim().split('\n') : [answer.stdout].filter(Boolean)
    for (const text of texts) expect(JSON.parse(text)).toMatchObject({ version: 1 })
  })

  test('reads back from JSON as it stands in the row', async () => {
    const { tables } = (await cli('list', '--json')).json() as { tables: { jobs: JobView[] }[] }
    const { id, stage, holder } = tables[0]?.jobs.find(({ status }) => status === 'processing') ?? {}
    expect([id, stage, holder]).toEqual([`${HOSTILE}1`, HOSTILE, HOSTILE])
    const { jobs } = (await cli('explain', `${HOSTILE}2`, '--json')).json() as { jobs: JobDetails[] }
    expect(jobs[0]?.job.failReason).toBe(HUGE.slice(0, 2000))
  })

  test('cannot make one row into two, nor one cell into two', async () => {
    for (const command of ['list', 'leases', 'failures', 'workers']) {
      const { rows } = await cli(command)
      expect(new Set(rows.map((cells) => cells.length)).size).toBe(1)
    }
    expect((await cli('list')).rows).toHaveLength(4)
  })

  test.skipIf(!existsSync('/usr/bin/script'))('is harmless on a terminal', () => {
    for (const command of ['list', 'leases', 'failures', 'workers', 'status']) {
      const program = `${process.execPath} --no-env-file ${join(ROOT, 'scripts', 'cli.ts')} ${command}`
      const { stdout } = spawnSync('/usr/bin/script', ['-qec', program, '/dev/null'], {
        env: { PATH: process.env.PATH ?? '', ...env },
        stdio: ['ignore', 'pipe', 'pipe'],
        encoding: 'utf8',
      })
      const unpainted = stdout.replaceAll(PAINT, '').replaceAll('\r\n', '\n')
      expect([command, HARMFUL.exec(unpainted)?.[0]]).toEqual([command, undefined])
      expect(stdout).not.toContain('\u001B[31mred')
    }
  })

  test('is kept as the reason, but for what no text column takes', async () => {
    const answer = await cli('retry', `${HOSTILE}2`, '--reason', HOSTILE, '--actor', HOSTILE)
    expectHarmless(answer)
    expect(answer.code).toBe(0)
    const [row] = await t.sql<{ data: { details: object } }[]>`select data from odd_events order by id desc limit 1`
    expect(row?.data.details).toMatchObject({ reason: HOSTILE.trim(), actor: HOSTILE.trim() })
  })
})

describe('a table of 200,000 rows', () => {
  test('is answered promptly by every command that looks', async () => {
    await using many = await freshDatabase()
    await many.sql`drop trigger witness on jobs`
    const failed = { status: `'failed'`, stage: `'clip'`, fail_code: `'C' || (random() * 30)::int`, attempt_count: '3' }
    await insertMany(many.sql, 'jobs', 100_000, { status: `'done'`, stage: `'clip'` })
    await insertMany(many.sql, 'jobs', 60_000, failed)
    await insertMany(many.sql, 'jobs', 39_000, { status: `'queued'`, stage: `'clip'` })
    await insertMany(many.sql, 'jobs', 1000, { ...EXPIRED, stage: `'clip'`, locked_by: `'w' || (random() * 50)::int` })
    await many.sql`analyze jobs`
    const [row] = await many.sql`select id::text as id from jobs where status = 'failed' limit 1`
    const id = String(row?.id)
    const took: string[] = []
    for (const args of [
      ['status'],
      ['leases'],
      ['list'],
      ['list', '--status', 'failed', '--code', 'C7'],
      ['list', '--after', id, '--table', 'jobs'],
      ['failures'],
      ['workers'],
      ['explain', id],
      ['events', id],
      ['reap', '--once', '--dry-run'],
      ['drain', '--plan'],
    ]) {
      const answer = await runCli(args, { DATABASE_URL: many.url })
      expect([args, answer.code === 0 || args[0] === 'status']).toEqual([args, true])
      took.push(`${args.slice(0, 3).join(' ')} ${Math.round(answer.tookMs)} ms`)
    }
    console.log(took.join(', '))
  })
})

/** Attaching tables that differ in every way: proposed, printed, not touched; then applied, fit, and nothing left to do. */
import { describe, expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from 'postgres'

import type { Attachment } from '../../src/cli/attach.ts'
import { loadProfiles } from '../../src/db/profile-file.ts'
import { inspectTable, openTable } from '../../src/db/table.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { openFolder } from '../support/open-folder.ts'
import { runProgram } from '../support/program.ts'

interface Case {
  title: string
  table: string
  ddl: string
  /** What must be right in the proposal. */
  expected: { base: string; id: string; status: string; events: string; columns?: Record<string, string> }
  /** What the team's own code does all day. */
  old: string[]
}

const CASES: Case[] = [
  {
    title: 'enum status in its own schema, bigint ids beyond 2^53',
    table: 'media.jobs',
    ddl: `create schema media;
      create type media.job_status as enum ('queued', 'processing', 'done', 'failed', 'cancelled');
      create table media.jobs (id bigint generated always as identity (start with 9007199254740993) primary key,
        status media.job_status not null default 'queued', url text not null, attempts int not null default 0,
        claimed_at timestamptz, created_at timestamptz not null default now());
      insert into media.jobs (status, url, attempts, claimed_at) values
        ('processing', 'a', 1, now() - interval '5 hours'), ('processing', 'b', 1, now()), ('queued', 'c', 0, null);`,
    expected: {
      base: 'snake_case',
      id: 'id',
      status: 'status',
      events: 'media.job_events',
      columns: { attempts: 'attempts', startedAt: 'claimed_at' },
    },
    old: [
      `insert into media.jobs (url) values ('x')`,
      `update media.jobs set status = 'done' where id = (select min(id) from media.jobs where status = 'queued')`,
      `select * from media.jobs where status = 'processing'`,
    ],
  },
  {
    title: 'text status, uuid ids, events with type and ts and without an id',
    table: 'clip_tasks',
    ddl: `create table clip_tasks (id uuid primary key default gen_random_uuid(), state text not null default 'pending',
        worker_id text, heartbeat_at timestamptz, retry_count int, last_error text, run_at timestamptz, updated_at timestamptz);
      create table clip_events (task_id uuid not null, type text not null, ts timestamptz not null, payload jsonb not null);
      insert into clip_tasks (state, worker_id, heartbeat_at) values
        ('pending', null, null), ('running', 'w1', now() - interval '1 hour'), ('running', 'w2', now()),
        ('succeeded', null, null), ('failed', null, null);`,
    expected: {
      base: 'snake_case',
      id: 'id',
      status: 'state',
      events: 'clip_events',
      columns: { holder: 'worker_id', heartbeatAt: 'heartbeat_at', attempts: 'retry_count', nextRunAt: 'run_at' },
    },
    old: [
      `insert into clip_tasks (state) values ('pending')`,
      `update clip_tasks set state = 'succeeded', updated_at = now() where state = 'pending'`,
      `insert into clip_events values (gen_random_uuid(), 'done', now(), '{}')`,
    ],
  },
  {
    title: 'camelCase columns, text ids, events that point to another job table',
    table: 'renderJobs',
    ddl: `create table "importJobs" ("jobKey" text primary key, status text);
      create table "renderJobs" ("jobKey" text primary key, status text not null, "lockedBy" text, "leaseUntil" timestamptz,
        "lastHeartbeat" timestamptz, "maxRetries" int, "createdAt" timestamptz default now(), "inputUrl" text);
      create table "jobEvents" (id bigserial primary key, "jobId" text not null references "importJobs", data jsonb not null);
      insert into "renderJobs" ("jobKey", status, "lockedBy", "leaseUntil") values
        ('a', 'waiting', null, null), ('b', 'active', 'w1', now() - interval '2 minutes'),
        ('c', 'active', 'w2', now() + interval '1 minute'), ('d', 'completed', null, null), ('e', 'failed', null, null);`,
    expected: {
      base: 'camelCase',
      id: 'jobKey',
      status: 'status',
      events: 'jobEvents',
      columns: { holder: 'lockedBy', leaseExpiresAt: 'leaseUntil', attempts: 'attemptCount' },
    },
    old: [
      `insert into "renderJobs" ("jobKey", status) values (gen_random_uuid()::text, 'waiting')`,
      `update "renderJobs" set status = 'completed' where status = 'waiting' and "jobKey" <> 'a'`,
      `select * from "renderJobs" limit 10`,
    ],
  },
  {
    title: 'schema and names in mixed case, varchar status with a check',
    table: 'Media.RenderQueue',
    ddl: `create schema "Media";
      create table "Media"."RenderQueue" ("Id" serial primary key, "Status" varchar(12) not null default 'New'
          check ("Status" in ('New', 'InProgress', 'Done', 'Error')),
        "Queue Name" text, "Progress" text, "StartedAt" timestamp, "CreatedAt" timestamptz default now());
      insert into "Media"."RenderQueue" ("Status") values ('InProgress'), ('New');`,
    expected: {
      base: 'camelCase',
      id: 'Id',
      status: 'Status',
      events: 'Media.job_events',
      columns: { stage: 'Queue Name', progress: 'LeaseholdProgress', startedAt: 'ProcessingStartedAt' },
    },
    old: [
      `insert into "Media"."RenderQueue" ("Queue Name") values ('x')`,
      `update "Media"."RenderQueue" set "Status" = 'Done' where "Status" = 'New'`,
      `select * from "Media"."RenderQueue"`,
    ],
  },
  {
    title: 'PENDING and RUNNING without attempts',
    table: 'job',
    ddl: `create table job (id uuid primary key default gen_random_uuid(), status varchar(20) not null default 'PENDING',
        started_at timestamptz, completed_at timestamptz, error_message text, created_at timestamptz not null default now());
      insert into job (status, started_at) values ('RUNNING', now() - interval '10 minutes'), ('RUNNING', now()),
        ('PENDING', null), ('COMPLETED', now()), ('FAILED', now());`,
    expected: {
      base: 'orphan',
      id: 'id',
      status: 'status',
      events: 'job_events',
      columns: { failReason: 'error_message', finishedAt: 'completed_at', startedAt: 'started_at' },
    },
    old: [
      `insert into job default values`,
      `update job set status = 'COMPLETED', completed_at = now() where status = 'PENDING'`,
      `select * from job where status = 'RUNNING'`,
    ],
  },
]

async function teamDatabase({ ddl }: Pick<Case, 'ddl'>): Promise<TestDatabase> {
  const t = await freshDatabase()
  await t.sql.unsafe(`drop table jobs, asr_jobs, job_events, witness cascade; ${ddl}`).simple()
  return t
}

interface Answer {
  code: number | null
  stdout: string
  output: string
}

async function attach(t: { url: string }, args: string[], cwd: string): Promise<Answer> {
  await using run = runProgram(
    'cli.ts',
    { DATABASE_URL: t.url, npm_lifecycle_event: 'attach' },
    ['attach', ...args],
    cwd,
  )
  let stdout = ''
  run.process.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  const { code } = await run.ended
  return { code, stdout, output: run.output() }
}

const json = (answer: Answer): Attachment => JSON.parse(answer.stdout) as Attachment

/** Everything there is: columns, indexes, views, types and rows. */
async function snapshot(sql: Sql): Promise<unknown> {
  const columns = await sql`
    select table_schema, table_name, column_name, data_type, column_default, is_nullable from information_schema.columns
    where table_schema not in ('pg_catalog', 'information_schema') order by 1, 2, ordinal_position`
  const indexes = await sql`select indexdef from pg_indexes where schemaname <> 'pg_catalog' order by 1`
  const tables = await sql<{ name: string }[]>`
    select oid::regclass::text as name from pg_class
    where relkind = 'r' and relnamespace::regnamespace::text not in ('pg_catalog', 'information_schema', 'pg_toast') order by 1`
  const rows: unknown[] = []
  for (const { name } of tables) {
    rows.push(
      name,
      ...(await sql.unsafe(`select md5(string_agg(t::text, '|' order by t::text)) as hash from ${name} t`)),
    )
  }
  return { columns: [...columns], indexes: [...indexes], rows }
}

describe.each(CASES.map((each) => [each.title, each] as const))('%s', (_, team) => {
  const { table, expected } = team

  test('is proposed and shown without a change, applied, and then complete', async () => {
    await using t = await teamDatabase(team)
    const folder = openFolder('attach')
    const before = await snapshot(t.sql)

    const first = await attach(t, [table, '--json'], folder)
    expect(first.output, first.output).toContain('Nothing was written')
    const proposed = json(first)
    expect(first.code).toBe(0)
    expect(await snapshot(t.sql)).toEqual(before)
    expect(readdirSync(folder)).toEqual([])
    expect(proposed.entry).toMatchObject({ extends: expected.base, table })
    expect(proposed.profile?.columns).toMatchObject({ id: expected.id, status: expected.status, ...expected.columns })
    expect(proposed.profile?.events?.table).toBe(expected.events)
    expect(proposed.sql.length).toBeGreaterThan(3)

    const applied = await attach(t, [table, '--apply'], folder)
    expect(applied.code, applied.output).toBe(0)
    expect(applied.output).toContain('LEASEHOLD_TABLES=./tables.json bun run doctor')
    const [profile] = await loadProfiles(join(folder, 'tables.json'))
    if (!profile || !proposed.profile) throw new Error('no profile')
    expect(profile).toEqual(proposed.profile)
    expect((await inspectTable(t.db, profile)).findings.filter(({ level }) => level === 'error')).toEqual([])
    await openTable(t.db, profile)

    // With the entry, and without it by looks alone.
    const after = await snapshot(t.sql)
    const withFile = await attach(t, [table, '--json'], folder)
    expect(json(withFile)).toMatchObject({ sql: [], entry: null })
    const byLooks = await attach(t, [table, '--json'], openFolder('attach'))
    expect(json(byLooks)).toMatchObject({ sql: [], profile: { ...profile } })
    const text = readFileSync(join(folder, 'tables.json'), 'utf8')
    expect((await attach(t, [table, '--apply'], folder)).code).toBe(0)
    expect(readFileSync(join(folder, 'tables.json'), 'utf8')).toBe(text)
    expect(await snapshot(t.sql)).toEqual(after)
  })

  test('what the team runs all day goes on while it is applied', async () => {
    await using t = await teamDatabase(team)
    const errors: unknown[] = []
    const done = new AbortController()
    let rounds = 0
    const busy = (async (): Promise<void> => {
      for (; !done.signal.aborted; rounds += 1) {
        for (const statement of team.old) await t.sql.unsafe(statement).catch((error: unknown) => errors.push(error))
        await sleep(5)
      }
    })()
    const applied = await attach(t, [table, '--apply'], openFolder('attach'))
    const during = rounds
    for (const statement of team.old) await t.sql.unsafe(statement)
    done.abort()
    await busy
    expect(applied.code, applied.output).toBe(0)
    expect(errors).toEqual([])
    expect(during).toBeGreaterThan(1)
  })
})

describe('the dry run', () => {
  test('says by which rule, who held it and what becomes of it, by the columns of today', async () => {
    const [media, clips, render, , job] = CASES as [Case, Case, Case, Case, Case]
    const folder = openFolder('attach')
    const dry = async (team: Case): Promise<Attachment['dryRun']> => {
      await using t = await teamDatabase(team)
      return json(await attach(t, [team.table, '--json'], folder)).dryRun
    }
    expect(await dry(media)).toMatchObject({
      groups: [{ rule: 'no_heartbeat', outcome: 'requeued', count: 1, examples: [{ id: '9007199254740993' }] }],
      processing: 2,
      leftAlone: 1,
      queued: 1,
    })
    expect(await dry(clips)).toMatchObject({
      groups: [{ rule: 'heartbeat_stale', outcome: 'requeued', count: 1, examples: [{ holder: 'w1' }] }],
      leftAlone: 1,
    })
    expect(await dry(render)).toMatchObject({
      groups: [{ rule: 'lease_expired', outcome: 'requeued', count: 1, examples: [{ id: 'b', holder: 'w1' }] }],
      leftAlone: 1,
    })
    expect(await dry(job)).toMatchObject({
      groups: [{ rule: 'no_heartbeat', outcome: 'failed', count: 1 }],
      processing: 2,
      leftAlone: 1,
    })
  })

  test('stops counting at a thousand, and reads as text', async () => {
    const [, , , , job] = CASES as [Case, Case, Case, Case, Case]
    await using t = await teamDatabase(job)
    await t.sql`insert into job (status, started_at) select 'RUNNING', now() - interval '1 hour' from generate_series(1, 1500)`
    const { stdout } = await attach(t, ['job'], openFolder('attach'))
    expect(stdout).toContain('1000 or more failed: no_heartbeat')
    expect(stdout).toContain('1 of 1502 processing left alone')
    expect(stdout).toMatch(/last sign of life 1 h.* ago/)
    expect(stdout).toContain('"extends": "orphan"')
  })
})

describe('--recover-only', () => {
  test('adds indexes and nothing else, and the table is fit', async () => {
    const [, , , , job] = CASES as [Case, Case, Case, Case, Case]
    await using t = await teamDatabase(job)
    const folder = openFolder('attach')
    const applied = await attach(t, ['job', '--recover-only', '--apply', '--json'], folder)
    expect(applied.code, applied.output).toBe(0)
    expect(json(applied).sql.filter((each) => !each.startsWith('create index concurrently'))).toEqual([])
    const [profile] = await loadProfiles(join(folder, 'tables.json'))
    if (!profile) throw new Error('no profile')
    await openTable(t.db, profile)
    expect(json(await attach(t, ['job', '--json', '--recover-only'], openFolder('attach'))).sql).toEqual([])
  })
})

describe('a long reader', () => {
  test('does not make others wait while --apply runs; it ends after the reader', async () => {
    const [media] = CASES as [Case]
    await using t = await teamDatabase(media)
    const [reading, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const reader = t.sql.begin(async (host) => {
      await host`select count(*) from media.jobs`
      reading.resolve()
      await release.promise
    })
    await reading.promise
    const applying = attach(t, ['media.jobs', '--apply'], openFolder('attach'))
    const isApplied = (): Promise<boolean> => Promise.race([applying.then(() => true), sleep(20, false)])
    const waitsMs: number[] = []
    while (waitsMs.length < 3 && !(await isApplied())) {
      const startedAt = performance.now()
      await t.sql`select count(*) from media.jobs`
      const tookMs = performance.now() - startedAt
      // Anything shorter stood behind nobody.
      if (tookMs > 200) waitsMs.push(tookMs)
    }
    expect(await isApplied()).toBe(false)
    release.resolve()
    await reader
    const applied = await applying
    expect(applied.code, applied.output).toBe(0)
    expect(applied.output).toContain('media.jobs is in use')
    // Half a second of lock timeout, and what even a busy machine does not add to all of them.
    expect(Math.min(...waitsMs)).toBeLessThan(1000)
  })
})

describe('bun run attach', () => {
  test('without a table lists those that look like job tables, best first', async () => {
    await using t = await freshDatabase()
    await t.sql
      .unsafe(
        `drop table asr_jobs, job_events, witness cascade;
        create table invoices (id int primary key, status text); insert into invoices values (1, 'paid'), (2, 'open');
        create table people (id int primary key, name text);
        create table tickets (id int primary key, state text default 'new'); insert into tickets values (1, 'done');
        drop trigger witness on jobs; insert into jobs (status) values ('queued'), ('processing'), ('done'), ('failed');`,
      )
      .simple()
    const listed = await attach(t, ['--json'], openFolder('attach'))
    const { tables } = JSON.parse(listed.stdout) as { tables: { table: string }[] }
    expect(tables.map(({ table }) => table)).toEqual(['jobs', 'tickets', 'invoices'])
    expect((await attach(t, [], openFolder('attach'))).output).toContain('Go on with: bun run attach jobs')
  })

  test('an unknown table is named, with the one that was probably meant', async () => {
    await using t = await teamDatabase(CASES[0] as Case)
    const folder = openFolder('attach')
    for (const [name, meant] of [
      ['jobs', 'media.jobs'],
      ['media.job', 'media.jobs'],
      ['Media.Jobs', 'media.jobs'],
    ] as const) {
      const answer = await attach(t, [name], folder)
      expect(answer.code).toBe(2)
      expect(answer.output).toContain(`there is no table ${name}`)
      expect(answer.output).toContain(`did you mean ${meant}?`)
    }
    expect((await attach(t, ['--tabel'], folder)).code).toBe(2)
    expect((await attach({ url: 'postgres://u:secret@127.0.0.1:1/d' }, ['jobs'], folder)).code).toBe(4)
  })

  test('a doubt about the words is not applied, and a table without a key is unfit', async () => {
    await using t = await teamDatabase({
      ddl: `create table tasks (id int primary key, status text); insert into tasks values (1, 'queued');
        create table loose (status text); insert into loose values ('queued');
        create table pairs (id int, part int, status text, primary key (id, part)); insert into pairs values (1, 1, 'queued')`,
    })
    const folder = openFolder('attach')
    const before = await snapshot(t.sql)
    const doubtful = await attach(t, ['tasks', '--apply'], folder)
    expect(doubtful.code).toBe(1)
    expect(doubtful.output).toContain('statuses.failed failed: no such word was found among its rows')
    expect(doubtful.output).toContain('Write the entry by hand')
    for (const table of ['loose', 'pairs']) {
      expect((await attach(t, [table], folder)).code).toBe(1)
      expect((await attach(t, [table, '--apply'], folder)).code).toBe(1)
    }
    expect(await snapshot(t.sql)).toEqual(before)
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('the file of tables', () => {
  test('keeps what is in it; two tables share it', async () => {
    const [media, clips] = CASES as [Case, Case]
    await using t = await teamDatabase({ ddl: `${media.ddl} ${clips.ddl}` })
    const folder = openFolder('attach')
    const file = join(folder, 'mine.json')
    writeFileSync(file, JSON.stringify({ note: 'ours', tables: [{ table: 'other', extends: 'orphan' }] }))
    for (const table of ['media.jobs', 'clip_tasks']) {
      const { code, output } = await attach(t, [table, '--apply', '--file', file], folder)
      expect(code, output).toBe(0)
    }
    const content = JSON.parse(readFileSync(file, 'utf8')) as { note: string; tables: { table: string }[] }
    expect(content.note).toBe('ours')
    expect(content.tables.map(({ table }) => table)).toEqual(['other', 'media.jobs', 'clip_tasks'])
    expect(content.tables[0]).toEqual({ table: 'other', extends: 'orphan' } as never)
    expect(readdirSync(folder)).toEqual(['mine.json'])
  })

  test.each([
    ['{ "tables": [', 'expected JSON'],
    ['{ "tables": [{ "table": "x", "colums": {} }] }', 'there is no such entry'],
    ['"jobs"', 'expected a list of tables'],
  ])('%s is refused before anything is changed', async (text, said) => {
    await using t = await teamDatabase(CASES[0] as Case)
    const folder = openFolder('attach')
    writeFileSync(join(folder, 'tables.json'), text)
    const before = await snapshot(t.sql)
    const { code, output } = await attach(t, ['media.jobs', '--apply'], folder)
    expect([code, output.includes(said)]).toEqual([1, true])
    expect(await snapshot(t.sql)).toEqual(before)
    expect(readFileSync(join(folder, 'tables.json'), 'utf8')).toBe(text)
    expect((await attach(t, ['media.jobs'], folder)).code).toBe(0)
  })

  test('a module is not written to', async () => {
    await using t = await teamDatabase(CASES[0] as Case)
    const folder = openFolder('attach')
    const { code, output } = await attach(t, ['media.jobs', '--apply', '--file', 'tables.ts'], folder)
    expect([code, output.includes('it is a module')]).toEqual([1, true])
    expect(existsSync(join(folder, 'tables.ts'))).toBe(false)
  })
})

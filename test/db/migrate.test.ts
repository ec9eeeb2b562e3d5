/** Installing us on a live database: only what is missing, any number of times, and never as an outage. */
import { describe, expect, test } from 'bun:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Sql } from 'postgres'

import { migrate, planMigration } from '../../src/db/migrate.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import { openTable, TableRejected } from '../../src/db/table.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { runProgram } from '../support/program.ts'

const OPTIONS = { tables: ['jobs', 'asr_jobs'], maxAttempts: 3 }

/** What the team had before: rows, an enum, an event table of its own. */
async function teamDatabase(): Promise<TestDatabase> {
  const t = await freshDatabase()
  await t.sql
    .unsafe(
      `drop table jobs, asr_jobs, job_events, witness cascade;
      create type job_status as enum ('queued', 'processing', 'done', 'failed');
      create table jobs (id bigserial primary key, status job_status not null default 'queued', url text, last_heartbeat_at timestamptz, attempt_count int not null default 0);
      create index on jobs (status, last_heartbeat_at);
      create table asr_jobs (id bigserial primary key, status job_status not null default 'queued');
      create table job_events (id bigserial primary key, job_id bigint not null, data jsonb not null);
      insert into jobs (url) select 'u' from generate_series(1, 1000);`,
    )
    .simple()
  return t
}

async function shape(sql: Sql): Promise<unknown> {
  return sql`
    select table_name, column_name, data_type, is_nullable, column_default from information_schema.columns
    where table_schema = 'public' order by 1, 2`
}

describe('migrate', () => {
  test('adds what an existing table lacks and leaves its rows and columns alone', async () => {
    await using t = await teamDatabase()
    const before = await t.sql`select id, url, attempt_count from jobs order by id`
    const [file] = await t.sql`select pg_relation_filenode('jobs') as node`
    await migrate(t.db, t.url, OPTIONS)
    expect(await t.sql`select id, url, attempt_count from jobs order by id`).toEqual(before)
    // The same file: no row was rewritten.
    expect((await t.sql`select pg_relation_filenode('jobs') as node`)[0]).toEqual(file)
    const table = await openTable(t.db, snakeCaseProfile('jobs'))
    expect(table.name).toBe('jobs')
    const indexes = await t.sql<
      { indexdef: string }[]
    >`select indexdef from pg_indexes where indexname like 'idx_%status_lease' order by 1`
    expect(indexes).toHaveLength(2)
    expect(indexes[0]?.indexdef).toContain('(status, lease_expires_at)')
    expect(indexes[0]?.indexdef).toMatch(/WHERE .*status = 'processing'/)
  })

  test('D16: a second time there is nothing to do', async () => {
    await using t = await teamDatabase()
    expect((await migrate(t.db, t.url, OPTIONS)).length).toBeGreaterThan(10)
    const before = await shape(t.sql)
    expect(await migrate(t.db, t.url, OPTIONS)).toEqual([])
    expect(await shape(t.sql)).toEqual(before)
  })

  test('D17: four at once end well, with one set of objects', async () => {
    await using t = await teamDatabase()
    const runs = await Promise.all([1, 2, 3, 4].map(() => migrate(t.open(), t.url, OPTIONS)))
    expect(runs.filter((steps) => steps.length > 0)).toHaveLength(1)
    expect(await planMigration(t.db, OPTIONS)).toEqual([])
    const [invalid] = await t.sql`select count(*)::int as count from pg_index where not indisvalid`
    expect(invalid).toEqual({ count: 0 })
  })

  test('D18: behind a long reader it steps back, so that nobody queues behind it', async () => {
    await using t = await teamDatabase()
    const lines: string[] = []
    const reading = Promise.withResolvers<void>()
    const release = Promise.withResolvers<void>()
    const reader = t.sql.begin(async (host) => {
      await host`select count(*) from jobs`
      reading.resolve()
      await release.promise
    })
    await reading.promise
    const migrating = migrate(t.db, t.url, { ...OPTIONS, onProgress: (line) => lines.push(line) })
    let longestMs = 0
    for (const deadline = performance.now() + 2500; performance.now() < deadline; await sleep(20)) {
      const startedAt = performance.now()
      await t.sql`select count(*) from jobs`
      longestMs = Math.max(longestMs, performance.now() - startedAt)
    }
    release.resolve()
    await reader
    await migrating
    expect(longestMs).toBeGreaterThan(50)
    expect(longestMs).toBeLessThan(1500)
    expect(lines.join('\n')).toContain('jobs is in use')
    expect(await planMigration(t.db, OPTIONS)).toEqual([])
  })

  test('D19: an index that a broken build left invalid is built again', async () => {
    await using t = await teamDatabase()
    await migrate(t.db, t.url, OPTIONS)
    await t.sql`update pg_index set indisvalid = false where indexrelid = 'idx_jobs_status_lease'::regclass`
    expect((await planMigration(t.db, OPTIONS)).map((step) => step.sql)).toEqual([
      'drop index concurrently if exists idx_jobs_status_lease',
      expect.stringContaining('create index concurrently if not exists "idx_jobs_status_lease"'),
    ] as never)
    await migrate(t.db, t.url, OPTIONS)
    const [index] = await t.sql`select indisvalid from pg_index where indexrelid = 'idx_jobs_status_lease'::regclass`
    expect(index).toEqual({ indisvalid: true })
  })

  test('ends also where repeatable read is the default, and with names near the limit', async () => {
    await using t = await freshDatabase()
    await t.sql.unsafe(
      `alter database "${new URL(t.url).pathname.slice(1)}" set default_transaction_isolation = 'repeatable read'`,
    )
    const tables = [`${'very_'.repeat(12)}jobs`, 'Jobs']
    await migrate(t.open(), t.url, { tables, maxAttempts: 3 })
    expect(await planMigration(t.open(), { tables, maxAttempts: 3 })).toEqual([])
    const [indexes] =
      await t.sql`select count(*)::int as count from pg_indexes where tablename = any(${tables}) and indexname like 'idx_%'`
    expect(indexes).toEqual({ count: 6 })
  })

  test('max_attempts takes its default from the configuration, also later', async () => {
    await using t = await teamDatabase()
    await migrate(t.db, t.url, { ...OPTIONS, maxAttempts: 5 })
    await t.sql`insert into jobs default values`
    await migrate(t.db, t.url, { ...OPTIONS, maxAttempts: 8 })
    await t.sql`insert into jobs default values`
    expect(await t.sql`select distinct max_attempts from jobs order by 1`).toEqual([
      { max_attempts: 5 },
      { max_attempts: 8 },
    ] as never)
  })

  test('names that need quotes and schemas are taken exactly as written', async () => {
    await using t = await freshDatabase()
    await t.sql
      .unsafe(`create schema "My Clips"; create table "My Clips"."Clip Jobs" (id text primary key, status text)`)
      .simple()
    const base = snakeCaseProfile('My Clips.Clip Jobs')
    const profile = { ...base, events: base.events && { ...base.events, table: 'My Clips.Events' } }
    const options = { tables: [profile], maxAttempts: 3 }
    await migrate(t.db, t.url, options)
    expect(await planMigration(t.db, options)).toEqual([])
    await openTable(t.db, profile)
  })
})

describe('bun run migrate', () => {
  test('makes everything on an empty database; --print only shows the SQL, and that SQL works', async () => {
    await using t = await freshDatabase()
    await t.sql`drop table jobs, asr_jobs, job_events cascade`
    await using print = runProgram('cli.ts', { DATABASE_URL: t.url }, ['migrate', '--print'])
    expect((await print.ended).code).toBe(0)
    expect(await planMigration(t.db, OPTIONS)).not.toEqual([])
    const text = print
      .output()
      .split('\n')
      .filter((line) => !line.endsWith('statements to run'))
      .join('\n')
    for (const statement of text.split(/;\n(?=\n|$)/).filter((each) => each.trim())) await t.sql.unsafe(statement)
    expect(await planMigration(t.db, OPTIONS)).toEqual([])
    // Only functions are left: they are made for a table that is complete.
    await using functions = runProgram('cli.ts', { DATABASE_URL: t.url }, ['migrate', '--print'])
    expect((await functions.ended).code).toBe(0)
    expect(functions.output()).toContain('create or replace function leasehold."claim_jobs"')
    expect(functions.output()).not.toContain('alter table')
    await using run = runProgram('cli.ts', { DATABASE_URL: t.url }, ['migrate'])
    expect((await run.ended).code).toBe(0)
    await using again = runProgram('cli.ts', { DATABASE_URL: t.url }, ['migrate'])
    expect((await again.ended).code).toBe(0)
    expect(again.output()).toContain('nothing to do')
  })

  test('says what is wrong and what to do', async () => {
    await using away = runProgram('cli.ts', { DATABASE_URL: 'postgres://u:secret@127.0.0.1:1/d' }, ['migrate'])
    expect((await away.ended).code).toBe(4)
    expect(away.output()).toContain('Is the database up')
    expect(away.output()).not.toContain('secret')
    await using typo = runProgram('cli.ts', { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d' }, ['migrate', '--prnt'])
    expect((await typo.ended).code).toBe(2)
  })
})

describe('a table that does not fit is refused before any row is touched (D15, D24)', () => {
  test.each([
    ['alter table jobs drop column lease_expires_at', 'column lease_expires_at is missing: run bun run migrate'],
    [
      'alter table jobs alter column lease_expires_at type timestamp',
      'column lease_expires_at is timestamp without time zone, expected timestamptz: alter table',
    ],
    [
      'alter table jobs alter column attempt_count drop default, alter column attempt_count type text',
      'column attempt_count is text, expected integer',
    ],
    ['alter table jobs drop constraint jobs_pkey cascade', 'column id is not unique by itself'],
    ['alter table job_events drop column data', 'column job_events.data is missing'],
    ['drop table job_events', 'there is no table job_events'],
    ['drop table jobs', 'there is no table jobs'],
    ['alter table job_events add column tenant text not null', 'column job_events.tenant is NOT NULL'],
    ['alter table job_events alter column job_id type int using 1', 'cannot hold an id of type uuid'],
    ['alter table job_events add foreign key (job_id) references asr_jobs', 'must point to asr_jobs'],
    ['alter table jobs alter column status type varchar(6)', 'status processing does not fit'],
    [
      `drop index idx_jobs_status_lease, idx_jobs_queued_due, idx_jobs_failed; create type s as enum ('queued', 'processing', 'done'); alter table jobs alter column status drop default, alter column status type s using 'done'::s`,
      'status failed is not in the enum: alter type s add value',
    ],
  ])('%s', async (ddl, problem) => {
    await using t = await freshDatabase()
    await t.sql.unsafe(`drop trigger witness on jobs; drop trigger witness on job_events; ${ddl}`).simple()
    const refused = await openTable(t.db, snakeCaseProfile('jobs')).catch((error: unknown) => error)
    expect(refused).toBeInstanceOf(TableRejected)
    expect((refused as TableRejected).problems.join('\n')).toContain(problem)
  })

  test('our index on dead letters refuses no row, however long its code is', async () => {
    await using t = await freshDatabase()
    const [row] = await t.sql`
      insert into jobs (status, fail_code)
      values ('failed', (select string_agg(md5(n::text), '') from generate_series(1, 10000) n)) returning length(fail_code)`
    expect(row?.length).toBe(320_000)
  })

  test('a role without the privileges is told which grants it lacks', async () => {
    await using t = await freshDatabase()
    const name = new URL(t.url).pathname.slice(1)
    await t.sql.unsafe(`create role ${name}_weak login password 'weak'`)
    const url = new URL(t.url)
    url.username = `${name}_weak`
    url.password = 'weak'
    const weak = t.open({ url: url.toString() })
    const refused = await openTable(weak, snakeCaseProfile('jobs')).catch((error: unknown) => String(error))
    expect(refused).toContain('grant select, update on "jobs"')
    expect(refused).toContain('grant insert, select on "job_events"')
    await t.sql
      .unsafe(`grant select, update on jobs to ${name}_weak; grant insert, select on job_events to ${name}_weak`)
      .simple()
    expect((await openTable(weak, snakeCaseProfile('jobs'))).name).toBe('jobs')
    await t.sql.unsafe(`drop owned by ${name}_weak; drop role ${name}_weak`).simple()
  })
})

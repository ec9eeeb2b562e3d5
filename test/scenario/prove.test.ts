/** `leasehold prove` on tables as teams have them: it kills its own workers, tells the times, and never touches the table. */
import { describe, expect, test } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { readdirSync } from 'node:fs'
import type { Sql } from 'postgres'

import { type Answer, runCli, spawnCli } from '../support/cli.ts'
import { startCluster } from '../support/cluster.ts'
import { eventually } from '../support/eventually.ts'
import { bareTeamDatabase, type Team, TEAMS, teamDatabase } from '../support/profiles.ts'
import { testFolder } from '../support/test-folder.ts'

interface Recovery {
  detectedMs: number
  movedMs: number
  runningMs: number | null
  doneMs: number | null
}

interface ProofJson {
  table: string
  isProven: boolean
  why?: string
  roundTripMs: { median: number; worst: number }
  supervised: Recovery
  alone: Recovery
  sentences: string[]
}

/** Somebody who may look at the team's table and make a schema, and no more. */
async function onlooker(sql: Sql, url: string, schemas: string[], { canCreate = true } = {}): Promise<string> {
  const role = `onlooker_${randomBytes(4).toString('hex')}`
  const database = new URL(url).pathname.slice(1)
  const grants = schemas.map(
    (each) => `grant usage on schema "${each}" to ${role}; grant select on all tables in schema "${each}" to ${role}`,
  )
  await sql.unsafe(`create role ${role} login password 'looks'; ${grants.join('; ')}`).simple()
  if (canCreate) await sql.unsafe(`grant create on database "${database}" to ${role}`)
  const address = new URL(url)
  ;[address.username, address.password] = [role, 'looks']
  return address.toString()
}

/** Everything of the table and of all sequences that a touch would change. */
async function fingerprint(sql: Sql, quoted: string): Promise<unknown> {
  const rows = await sql.unsafe(`select xmin::text, ctid::text, j.*::text as whole from ${quoted} as j order by ctid`)
  const sequences = await sql`select schemaname, sequencename, last_value::text from pg_sequences order by 1, 2`
  const [seen] = await sql`select count(*)::int as changes from witness`
  return { rows: [...rows], sequences: [...sequences], seen }
}

async function scratchSchemas(sql: Sql): Promise<string[]> {
  const rows = await sql<{ name: string }[]>`select nspname as name from pg_namespace where nspname like 'leasehold%'`
  return rows.map(({ name }) => name)
}

async function prove(
  url: string,
  entry: object,
  ...args: string[]
): Promise<Answer & { proof: ProofJson; refused: unknown; leftBehind: string[] }> {
  const { proofs, ...rest } = await proveAll(url, [entry], ...args)
  return { ...rest, proof: proofs[0] as ProofJson }
}

async function proveAll(
  url: string,
  entries: object[],
  ...args: string[]
): Promise<Answer & { proofs: ProofJson[]; refused: unknown; leftBehind: string[] }> {
  using folder = testFolder()
  using temporary = testFolder()
  const tables = folder.write('tables.json', JSON.stringify(entries))
  // Settings of everyday must neither reach the proof's workers nor stop them.
  const everyday = { HEARTBEAT_SEC: '20', CLIP_SLA_FACTOR: '9', JOB_MAX_ATTEMPTS: '1', WORKER_TABLES: 'elsewhere' }
  const env = { ...everyday, DATABASE_URL: url, LEASEHOLD_TABLES: tables, TMPDIR: temporary.path }
  const answer = await runCli(['prove', '--json', ...args], env)
  const told = answer.stdout === '' ? null : (answer.json() as { proofs: ProofJson[]; refused: unknown })
  return {
    ...answer,
    proofs: told?.proofs ?? [],
    refused: told?.refused,
    leftBehind: readdirSync(temporary.path),
  }
}

describe.each(TEAMS)('$title', (team: Team) => {
  test('recovery is shown on a copy, by a role that may not even write to the table', async () => {
    await using t = await teamDatabase(team)
    await t.put({ status: 'queued' })
    await t.put({
      status: 'processing',
      holder: `'host-1-aaaa'`,
      attempts: '1',
      leaseExpiresAt: `now() - interval '1 day'`,
    })
    const schemas = [...new Set(['public', ...(team.entry.table as string).split('.').slice(0, -1)])]
    const url = await onlooker(t.sql, t.url, schemas)
    const before = await fingerprint(t.sql, t.quoted)

    const { code, stderr, proof, leftBehind } = await prove(url, team.entry)
    expect({ code, stderr }).toEqual({ code: 0, stderr })
    expect(proof).toMatchObject({ table: t.profile.table, isProven: true })
    const { supervised, alone } = proof
    for (const { detectedMs, movedMs, runningMs, doneMs } of [supervised, alone]) {
      expect(detectedMs).toBeGreaterThanOrEqual(0)
      expect(movedMs).toBeGreaterThan(0)
      if (t.profile.policy.onExpiry === 'fail') expect([runningMs, doneMs]).toEqual([null, null])
      else
        expect([movedMs, runningMs, doneMs]).toEqual(
          [movedMs, runningMs, doneMs].toSorted((a, b) => (a ?? 0) - (b ?? 0)),
        )
    }
    // Nobody gave this one back: the lease had to run out first.
    expect(alone.detectedMs).toBeGreaterThan(0)
    expect(alone.movedMs).toBeGreaterThan(alone.detectedMs)
    expect(proof.roundTripMs.worst).toBeGreaterThanOrEqual(proof.roundTripMs.median)
    expect(proof.sentences[1]).toMatch(/^With your heartbeat of (20|30) s and /)

    expect(await fingerprint(t.sql, t.quoted)).toEqual(before)
    expect(await scratchSchemas(t.sql)).toEqual([])
    expect(leftBehind).toEqual([])
    const [rights] =
      await t.sql`select has_table_privilege(${new URL(url).username}, ${t.quoted}, 'insert, update, delete') as can_write`
    expect(rights).toEqual({ can_write: false })
  }, 120_000)
})

/** Whatever a copy must not take along: a key nobody fills, checks of the team's own columns, defaults and checks that write elsewhere, triggers, foreign keys. */
const THORNY: Team = {
  title: 'thorny',
  ddl: `
    create table calls (at timestamptz default now());
    create function next_reference() returns text language plpgsql as $$ begin insert into calls default values; return 'r'; end $$;
    create function refuse() returns trigger language plpgsql as $$ begin insert into calls default values; raise 'not here'; end $$;
    create function is_known(word text) returns boolean language plpgsql as $$ begin insert into calls default values; return true; end $$;
    create table customers (id int primary key);
    create sequence job_numbers;
    create table thorny (
      id varchar(12) not null, tenant int not null, primary key (id, tenant), unique (id),
      status varchar(10) not null default 'queued' check (is_known(status)), kind text not null check (kind in ('a', 'b')),
      source text check (source is not null), stage text check (stage is not null), check (id like 'thorn-%'),
      check (status <> 'queued' or source is not null), check (thorny is distinct from null and num_nulls(kind, number) = 0),
      customer int not null references customers, number bigint not null default nextval('job_numbers'),
      reference text not null default next_reference(), doubled int generated always as (tenant * 2) stored, created_at timestamptz not null default now());
    create trigger refuse before insert on thorny for each row execute function refuse();`,
  entry: { table: 'thorny', events: null },
}

test('a table full of thorns: what it asks for is filled or lifted in the copy, and nothing outside is called', async () => {
  await using t = await teamDatabase(THORNY)
  const before = await fingerprint(t.sql, t.quoted)
  const { code, proof } = await prove(t.url, THORNY.entry)
  expect({ code, why: proof.why }).toEqual({ code: 0, why: undefined })
  expect(proof).toMatchObject({ isProven: true })
  expect(await t.sql`select * from calls`).toHaveLength(0)
  expect(await fingerprint(t.sql, t.quoted)).toEqual(before)
}, 60_000)

describe('what goes wrong on one table is the reason why that one is not proven', () => {
  test('a job that breaks a check of a column that workers write; the next table is proven', async () => {
    const [snake] = TEAMS as [Team, ...Team[]]
    await using t = await teamDatabase(snake)
    await t.sql`create table orders (like jobs including all)`
    await t.sql`alter table jobs add constraint hardly_any check (max_attempts < 3)`
    const { code, proofs, refused, leftBehind } = await proveAll(t.url, [
      snake.entry,
      { table: 'orders', events: null },
    ])
    const why = expect.stringMatching(/^23514: .* violates check constraint "hardly_any"$/) as string
    expect({ code, refused }).toEqual({ code: 1, refused: [] })
    expect(proofs).toEqual([
      { table: 'jobs', isProven: false, why } as ProofJson,
      expect.objectContaining({ table: 'orders', isProven: true }) as ProofJson,
    ])
    expect(leftBehind).toEqual([])
    expect(await scratchSchemas(t.sql)).toEqual([])
  }, 60_000)

  test('a key of a type nobody can guess', async () => {
    const team = {
      title: 'cidr',
      ddl: `create table jobs (id cidr primary key, status text not null default 'queued');`,
      entry: { table: 'jobs', events: null },
    }
    await using t = await teamDatabase(team)
    const { code, proof } = await prove(t.url, team.entry)
    expect([code, proof.isProven]).toEqual([1, false])
    expect(proof.why).toContain('column id must have a value, and nobody can guess one of type cidr')
    expect(await scratchSchemas(t.sql)).toEqual([])
  })
})

describe('refusals', () => {
  const [snake] = TEAMS as [Team, ...Team[]]

  test('without the right to make a schema it says which grant is missing, and makes nothing', async () => {
    await using t = await teamDatabase(snake)
    const url = await onlooker(t.sql, t.url, ['public'], { canCreate: false })
    const { code, stderr, stdout } = await prove(url, snake.entry)
    expect([code, stdout]).toEqual([1, ''])
    const { username, pathname } = new URL(url)
    expect(stderr).toContain(`grant create on database "${pathname.slice(1)}" to "${username}";`)
  })

  test('a table that the doctor refuses is refused here for the same reason', async () => {
    await using t = await bareTeamDatabase(snake)
    const { code, refused } = await prove(t.url, snake.entry)
    expect(code).toBe(1)
    const problems = expect.arrayContaining([expect.stringContaining('column lease_expires_at is missing')]) as string[]
    expect(refused).toEqual([{ table: 'jobs', problems }])
    expect(await scratchSchemas(t.sql)).toEqual([])
  })

  test('a table on which no worker takes leases has nothing to prove', async () => {
    await using t = await teamDatabase(snake)
    const { code, refused } = await prove(t.url, { ...snake.entry, columns: { leaseExpiresAt: null } })
    expect(code).toBe(1)
    expect(refused).toEqual([{ table: 'jobs', problems: [expect.stringContaining('workers take no leases on it')] }])
  })

  test.each([
    ['--table', 'job'],
    ['--seconds', '1'],
  ])('%s %s is refused before anything is made', async (option, value) => {
    await using t = await teamDatabase(snake)
    const { code, stdout } = await prove(t.url, snake.entry, option, value)
    expect([code, stdout]).toEqual([2, ''])
  })
})

describe('ends that come early', () => {
  const [snake] = TEAMS as [Team, ...Team[]]

  test('Ctrl-C in the middle leaves no schema, no process and no file', async () => {
    await using t = await teamDatabase(snake)
    using temporary = testFolder()
    const child = spawnCli(['prove', '--seconds', '30'], {
      DATABASE_URL: t.url,
      REAPER_TABLES: 'jobs',
      TMPDIR: temporary.path,
    })
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const ended = new Promise<number | null>((done) => void child.once('close', done))
    await eventually(() => stderr.includes('together with its supervisor'), { withinMs: 40_000 })
    expect(await scratchSchemas(t.sql)).toHaveLength(1)
    child.kill('SIGINT')
    expect(await ended).toBe(130)
    expect(await scratchSchemas(t.sql)).toEqual([])
    expect(readdirSync(temporary.path)).toEqual([])
    const programs =
      await t.sql`select application_name from pg_stat_activity where datname = current_database() and application_name ~ '^leasehold (worker|reaper|heartbeat|supervisor)'`
    expect(programs).toHaveLength(0)
  }, 90_000)

  test('when the schema cannot be dropped any more, it says how; the next proof says so again', async () => {
    await using cluster = await startCluster()
    const env = { DATABASE_URL: cluster.url, REAPER_TABLES: 'jobs' }
    const child = spawnCli(['prove', '--seconds', '30'], env)
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    const ended = new Promise<number | null>((done) => void child.once('close', done))
    await eventually(() => stderr.includes('together with its supervisor'), { withinMs: 40_000 })
    await cluster.stop()
    expect(await ended).toBe(4)
    const [, drop = ''] = /could not be dropped [\s\S]*?\n +(drop schema .*);/.exec(stderr) ?? []
    expect(drop).toMatch(/^drop schema if exists "leasehold_prove_[0-9a-f]{8}" cascade$/)

    await cluster.start()
    const [schema = ''] = await eventually(() => scratchSchemas(cluster.sql))
    expect(drop).toContain(schema)
    const again = await runCli(['prove', '--table', 'asr_jobs'], { ...env, REAPER_TABLES: 'jobs,asr_jobs' })
    expect(again.code).toBe(0)
    expect(again.stderr).toContain(`${drop};`)
    expect(again.stdout).toContain('Proven for asr_jobs on ')
    await cluster.sql.unsafe(drop)
    expect(await scratchSchemas(cluster.sql)).toEqual([])
  }, 120_000)
})

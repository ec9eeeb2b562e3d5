/** The doctor: every finding says what is wrong, what follows, and the SQL or setting that mends it, and that SQL does. */
import { describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { examine } from '../../src/db/doctor.ts'
import type { Finding } from '../../src/db/finding.ts'
import { migrate } from '../../src/db/migrate.ts'
import { type Profile, profileSchema } from '../../src/db/profile.ts'
import { parseProfiles } from '../../src/db/profile-file.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { operatorOn } from '../support/operator.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { PGBOUNCER, startPgBouncer } from '../support/pgbouncer.ts'
import { runProgram } from '../support/program.ts'
import { EXPIRED, insertJob, readJob } from '../support/rows.ts'

const SETTINGS = {
  stages: stagePolicy({ heartbeatSec: 10, factors: { clip: 6 }, defaultLeaseSec: 300, maxRuntimeSec: 21_600 }),
  leaseTimeoutSec: 30,
  nullLeaseSec: 3600,
  queuedOrphanSec: 300,
  maxAttempts: 3,
  backoffLadderMs: [1000],
  prepare: false,
  hasDispatcher: false,
  warnings: [],
}

async function find(t: TestDatabase, profile: Profile = snakeCaseProfile('jobs'), db = t.db): Promise<Finding[]> {
  const findings = await examine(db, [profile], { ...SETTINGS, url: t.url })
  // The test server commits without waiting, for speed, and the doctor says so every time.
  return findings.filter(({ place }) => place !== 'synchronous_commit')
}

describe('the doctor finds', () => {
  test('nothing on a table that is as it should be', async () => {
    await using t = await freshDatabase()
    expect(await find(t)).toEqual([])
  })

  test('SQL functions that were made for other settings', async () => {
    await using t = await freshDatabase()
    const functions = { stages: SETTINGS.stages, backoffLadderMs: SETTINGS.backoffLadderMs }
    await migrate(t.db, t.url, { tables: ['jobs'], maxAttempts: 3, functions })
    expect(await find(t)).toEqual([])
    await migrate(t.db, t.url, { tables: ['jobs'], maxAttempts: 3, functions: { ...functions, backoffLadderMs: [5] } })
    expect(await find(t)).toMatchObject([{ level: 'warning', place: 'functions', mend: 'bun run migrate' }])
  })

  test.if(PGBOUNCER !== null || process.env.CI === 'true')('a pooler, and prepared statements behind it', async () => {
    await using t = await freshDatabase()
    await using bouncer = await startPgBouncer(t.url)
    const places = async (url: string, prepare: boolean): Promise<string[]> =>
      (await examine(t.db, [], { ...SETTINGS, url, prepare })).map(({ level, place }) => `${level} ${place}`)
    expect(await places(bouncer.url, true)).toEqual(expect.arrayContaining(['error DATABASE_PREPARE', 'note pooler']))
    expect(await places(bouncer.url, false)).not.toContain('error DATABASE_PREPARE')
    expect((await places(t.url, true)).join()).not.toContain('pooler')
  })

  /** [what is broken, level, what is said, whether the SQL it prints mends it] */
  test.each<[string, Finding['level'], string, boolean]>([
    ['alter table jobs drop column lease_expires_at', 'error', 'column lease_expires_at is missing', true],
    ['alter table jobs rename column locked_by to lockedby', 'error', 'did you mean lockedby?', true],
    ['alter table jobs alter column last_heartbeat_at type timestamp', 'error', 'is timestamp without time zone', true],
    [
      'alter table jobs alter column attempt_count drop default, alter column attempt_count type text',
      'error',
      'column attempt_count is text',
      true,
    ],
    ['drop index idx_jobs_status_lease', 'warning', 'an index is missing', true],
    [
      `update pg_index set indisvalid = false where indexrelid = 'idx_jobs_queued_due'::regclass`,
      'warning',
      'is invalid',
      false,
    ],
    ['alter table job_events add column tenant uuid not null', 'error', 'column job_events.tenant is NOT NULL', true],
    ['alter table job_events add foreign key (job_id) references asr_jobs', 'error', 'must point to asr_jobs', true],
    ['drop table job_events', 'error', 'there is no table job_events', true],
    ['alter table jobs drop constraint jobs_pkey', 'error', 'not unique by itself', true],
    [
      `alter table jobs add check (status in ('queued', 'running', 'done', 'failed'))`,
      'error',
      'breaks the constraint',
      false,
    ],
    [
      `create unique index one_done on jobs ((payload ->> 'media')) where status = 'done'`,
      'warning',
      'one_done depends on the status',
      false,
    ],
  ])('%s', async (ddl, level, what, mends) => {
    await using t = await freshDatabase()
    await t.sql.unsafe(`drop trigger witness on jobs; drop trigger if exists witness on job_events; ${ddl}`).simple()
    const found = (await find(t)).find((finding) => finding.what.includes(what))
    expect(found?.level).toBe(level)
    expect(found?.follows).not.toBe('')
    if (!mends || !found?.mend) return
    const statements = found.mend.split(/;\n?|, or (?=run|name)/).filter((each) => /^(alter|create)/.test(each.trim()))
    for (const statement of statements) await t.sql.unsafe(statement)
    expect((await find(t)).filter((finding) => finding.what === found.what && finding.level !== 'note')).toEqual([])
  })

  test('a status word that the enum does not have, and the one that was meant', async () => {
    await using t = await freshDatabase()
    await t.sql
      .unsafe(
        `create type st as enum ('queued', 'processed', 'done', 'failed'); create table e (id int primary key, status st)`,
      )
      .simple()
    const [found] = (await find(t, { ...snakeCaseProfile('e'), events: null })).filter(
      ({ place }) => place === 'statuses',
    )
    expect(found?.what).toBe('status processing is not in the enum, did you mean processed?')
    expect(found?.mend).toContain(`alter type st add value 'processing'`)
  })

  test('a read-only server, and synchronous_commit = off', async () => {
    await using t = await freshDatabase()
    const name = new URL(t.url).pathname.slice(1)
    await t.sql
      .unsafe(
        `alter database ${name} set default_transaction_read_only = on; alter database ${name} set synchronous_commit = off`,
      )
      .simple()
    const findings = await examine(t.open(), [snakeCaseProfile('jobs')], { ...SETTINGS, url: t.url })
    expect(findings.find(({ place }) => place === 'server')).toMatchObject({
      level: 'error',
      what: 'the server is read-only',
    })
    expect(findings.find(({ place }) => place === 'synchronous_commit')?.mend).toContain('synchronous_commit = on')
  })

  test('missing privileges, column by column, and row-level security', async () => {
    await using t = await freshDatabase()
    const role = `${new URL(t.url).pathname.slice(1)}_weak`
    await t.sql
      .unsafe(
        `create role ${role} login password 'weak'; grant select on jobs to ${role}; grant update (status) on jobs to ${role}; grant insert, select on job_events to ${role}`,
      )
      .simple()
    const url = new URL(t.url)
    ;[url.username, url.password] = [role, 'weak']
    const weak = t.open({ url: url.toString() })
    const found = await find(t, snakeCaseProfile('jobs'), weak)
    expect(found.map(({ what }) => what)).toContain('not allowed to write locked_by')
    await t.sql.unsafe(`grant update on jobs to ${role}; alter table jobs enable row level security`).simple()
    expect((await find(t, snakeCaseProfile('jobs'), weak)).map(({ what }) => what)).toContain(
      'row-level security hides rows from us',
    )
    await t.sql.unsafe(`drop owned by ${role}; drop role ${role}`).simple()
  })

  test('leases that are missing, jobs that ran out, jobs that nobody takes', async () => {
    await using t = await freshDatabase()
    await insertJob(t.sql, 'jobs', { ...EXPIRED, lease_expires_at: 'null', last_heartbeat_at: 'now()' })
    await insertJob(t.sql, 'jobs', EXPIRED)
    await insertJob(t.sql, 'jobs', { created_at: `now() - interval '1 hour'` })
    const what = (await find(t)).map((finding) => finding.what)
    expect(what).toContain('1 of 2 processing jobs have no lease: older workers hold them')
    expect(what).toContain('1 processing jobs have run out')
    expect(what).toContain('1 jobs have been due for over 300 s')
  })

  test('what a person did by hand is no other loop', async () => {
    await using t = await freshDatabase()
    const leases = createLeases({ db: t.db, table: 'jobs' })
    const operator = operatorOn(t.db, [snakeCaseProfile('jobs')])
    const deed = { actor: 'ada', reason: 'again' }
    for (const action of ['retry', 'end-lease'] as const) {
      const id = await insertJob(t.sql, 'jobs')
      const claimed = await leases.claimJob(id, 'w')
      if (!claimed.ok) throw new Error(claimed.error)
      if (action === 'retry') await leases.finishJob(claimed.value.lease, false, { code: 'VALIDATION' })
      expect(await operator.act(action, { table: 'jobs', id }, deed)).toMatchObject({ ok: true })
      expect((await readJob(t.sql, 'jobs', id)).status).toBe('queued')
    }
    expect((await find(t)).filter(({ what }) => what.startsWith('another recovery loop'))).toEqual([])
  })

  test('R12: another recovery loop that still writes, and not our own one', async () => {
    await using t = await freshDatabase()
    const leases = createLeases({ db: t.db, table: 'jobs' })
    for (const outcome of ['retry', 'foreign', 'counted']) {
      const id = await insertJob(t.sql, 'jobs')
      const claimed = await leases.claimJob(id, 'w')
      if (!claimed.ok) throw new Error(claimed.error)
      if (outcome === 'retry') await leases.finishJob(claimed.value.lease, false)
      if (outcome === 'foreign') await t.sql`update jobs set status = 'queued', locked_by = null where id = ${id}`
      if (outcome === 'counted') await t.sql`update jobs set attempt_count = attempt_count + 1 where id = ${id}`
    }
    const found = (await find(t)).find(({ what }) => what.startsWith('another recovery loop'))
    expect(found?.what).toContain('1 jobs have more attempts than we told of, 1 jobs were queued again')
  })

  test('a policy that fights the settings', async () => {
    await using t = await freshDatabase()
    const [profile] = parseProfiles(
      [{ table: 'jobs', columns: { nextRunAt: null }, policy: { queuedOrphans: 'republish', heartbeatSec: 60 } }],
      'f',
    )
    const places = (await find(t, profileSchema.parse(profile))).map(({ place }) => place)
    expect(places).toContain('policy.queuedOrphans')
    expect(places).toContain('columns.nextRunAt')
  })
})

describe('bun run doctor', () => {
  test('reports as text and as JSON, with an exit code, and names the next step', async () => {
    await using t = await freshDatabase()
    await using fit = runProgram('cli.ts', { DATABASE_URL: t.url }, ['doctor'])
    expect((await fit.ended).code).toBe(0)
    expect(fit.output()).toContain('Fit: jobs, asr_jobs.')
    await t.sql.unsafe('alter table jobs drop column fail_code')
    await using unfit = runProgram('cli.ts', { DATABASE_URL: t.url }, ['doctor', '--json'])
    expect((await unfit.ended).code).toBe(1)
    const report = JSON.parse(unfit.output()) as { isFit: boolean; findings: Finding[] }
    expect(report.isFit).toBe(false)
    expect(report.findings[0]).toMatchObject({ level: 'error', table: 'jobs', place: 'columns.failCode' })
    expect(report.findings[0]?.mend).toBe('alter table "jobs" add column if not exists "fail_code" text;')
  })

  test('a wrong file of tables stops doctor, reaper and worker before any row is touched', async () => {
    await using t = await freshDatabase()
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    const folder = mkdtempSync(join(tmpdir(), 'tables-'))
    const file = join(folder, 'tables.json')
    writeFileSync(file, JSON.stringify([{ table: 'jobs', columns: { holder: "x'; drop table jobs; --" } }]))
    const env = { DATABASE_URL: t.url, LEASEHOLD_TABLES: file, WORKER_HANDLERS: 'x.ts' }
    for (const [script, ...args] of [
      ['cli.ts', 'doctor'],
      ['cli.ts', 'status'],
      ['reaper.ts'],
      ['worker.ts'],
      ['cli.ts', 'migrate'],
    ]) {
      await using program = runProgram(script ?? '', env, args)
      expect((await program.ended).code).toBe(2)
      expect(program.output()).toContain('tables[0].columns.holder: expected a plain name')
    }
    expect((await readJob(t.sql, 'jobs', id)).status).toBe('processing')
    rmSync(folder, { recursive: true })
  })

  test('a table that is not there is named, and migrate makes none of that name', async () => {
    await using t = await freshDatabase()
    const folder = mkdtempSync(join(tmpdir(), 'tables-'))
    writeFileSync(join(folder, 'tables.json'), JSON.stringify([{ table: 'jbos' }]))
    const env = { DATABASE_URL: t.url, LEASEHOLD_TABLES: join(folder, 'tables.json') }
    await using doctor = runProgram('cli.ts', env, ['doctor'])
    expect((await doctor.ended).code).toBe(1)
    expect(doctor.output()).toContain('there is no table jbos')
    await using migration = runProgram('cli.ts', env, ['migrate'])
    expect((await migration.ended).code).toBe(1)
    expect(migration.output()).toContain('there is no table jbos')
    expect(await t.sql`select to_regclass('jbos') as found`).toMatchObject([{ found: null }])
    rmSync(folder, { recursive: true })
  })
})

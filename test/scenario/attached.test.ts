/** The reaper on tables of a team's own, described in a file: whole stories with the real program. */
import { describe, expect, test } from 'bun:test'
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { createLeases, type Lease } from '../../src/worker/lease.ts'
import { parseProfiles } from '../../src/db/profile-file.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { openFolder } from '../support/open-folder.ts'
import { type Program, runProgram } from '../support/program.ts'
import { eventTypes, EXPIRED, insertJob, readEvents, readJob } from '../support/rows.ts'
import { openPlace, startWorker } from '../support/worker.ts'

interface TablesFile extends Disposable {
  env: Record<string, string>
}

function tablesFile(url: string, tables: object[]): TablesFile {
  const folder = openFolder('tables')
  const file = join(folder, 'tables.json')
  writeFileSync(file, JSON.stringify(tables))
  return {
    env: { DATABASE_URL: url, LEASEHOLD_TABLES: file, HEARTBEAT_SEC: '0.3', REAPER_INTERVAL_SEC: '0.5' },
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

async function migrated(file: TablesFile): Promise<void> {
  await using migration = runProgram('cli.ts', file.env, ['migrate'])
  expect(await migration.ended, migration.output()).toMatchObject({ code: 0 })
}

/** The team of the fifth seed: a table of its own words, a worker that beats, a cron that never saw RUNNING orphans. */
async function orphanTeam(t: TestDatabase): Promise<void> {
  await t.sql
    .unsafe(
      `drop table jobs, asr_jobs, job_events cascade;
      create type jobstatus as enum ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED');
      create table job (id serial primary key, status jobstatus not null default 'PENDING', started_at timestamptz,
        completed_at timestamptz, error_message text, last_heartbeat_at timestamptz, created_at timestamptz not null default now())`,
    )
    .simple()
}

const orphanEntry = (policy: object = {}): object => ({
  extends: 'orphan',
  table: 'job',
  // The fifth seed's numbers stand; only the grace after the test server's own start is made short.
  policy: { heartbeatSec: 0.3, ...policy },
})

interface OrphanRow {
  status: string
  error_message: string | null
  completed_at: Date | null
}

const readOrphan = async (t: TestDatabase, id: string): Promise<OrphanRow> => {
  const [row] = await t.sql<OrphanRow[]>`select status::text, error_message, completed_at from job where id = ${id}`
  if (!row) throw new Error(`no job ${id}`)
  return row
}

describe('the orphan profile', () => {
  test('stale and silent RUNNING jobs fail with the orphan message; a fresh one is untouched', async () => {
    await using t = await freshDatabase()
    await orphanTeam(t)
    using file = tablesFile(t.url, [orphanEntry()])
    await migrated(file)
    const running = (columns: object): Promise<string> => insertJob(t.sql, 'job', { status: `'RUNNING'`, ...columns })
    const minutesAgo = (minutes: number): string => `now() - interval '${minutes} minutes'`
    const stale = await running({ started_at: minutesAgo(60), last_heartbeat_at: minutesAgo(2.1) })
    const silent = await running({ started_at: minutesAgo(60) })
    const beating = await running({ started_at: minutesAgo(60), last_heartbeat_at: minutesAgo(1) })
    const young = await running({ started_at: minutesAgo(1) })
    const done = await insertJob(t.sql, 'job', { status: `'COMPLETED'`, started_at: minutesAgo(600) })
    const before = await Promise.all([beating, young, done].map((id) => readOrphan(t, id)))

    await using reaper = runProgram('reaper.ts', file.env)
    for (const id of [stale, silent]) {
      const row = await eventually(
        async () => {
          const found = await readOrphan(t, id)
          return found.status === 'FAILED' ? found : null
        },
        { what: `job ${id} failed:\n${reaper.output()}` },
      )
      expect(row.error_message).toBe('orphan: job RUNNING sem heartbeat; worker provavelmente morreu')
      expect(row.completed_at).toBeInstanceOf(Date)
      expect(await eventTypes(t.sql, id)).toEqual(['reaper:failed(timeout)'])
    }
    await reaper.said('pass completed').catch(() => undefined)
    expect(await Promise.all([beating, young, done].map((id) => readOrphan(t, id)))).toEqual(before)
  })

  test.each(['report', 'republish', 'fail'] as const)(
    'PENDING that was never dispatched: %s',
    async (queuedOrphans) => {
      await using t = await freshDatabase()
      await orphanTeam(t)
      using file = tablesFile(t.url, [orphanEntry({ queuedOrphans, queuedOrphanSec: 60 })])
      await migrated(file)
      const old = await insertJob(t.sql, 'job', { created_at: `now() - interval '5 minutes'` })
      const fresh = await insertJob(t.sql, 'job')
      const dispatch: Record<string, string> = queuedOrphans === 'republish' ? { QUEUE_PROVIDER: 'pgboss' } : {}
      await using reaper = runProgram('reaper.ts', { ...file.env, ...dispatch })
      if (queuedOrphans === 'report') {
        expect(await reaper.said('jobs are due and nobody takes them')).toMatchObject({ table: 'job', jobs: 1 })
        expect((await readOrphan(t, old)).status).toBe('PENDING')
      } else if (queuedOrphans === 'republish') {
        const messages = await eventually(async () => {
          const rows = await t.sql<{ data: unknown }[]>`select data from pgboss.job`
          return rows.length > 0 ? rows : null
        })
        expect(messages.map(({ data }) => data)).toEqual([{ id: old }])
        expect(await eventTypes(t.sql, old)).toEqual(['requeued:undispatched'])
        expect((await readOrphan(t, old)).status).toBe('PENDING')
      } else {
        await eventually(async () => (await readOrphan(t, old)).status === 'FAILED')
        expect(await readOrphan(t, old)).toMatchObject({
          error_message: 'orphan: job PENDING never dispatched',
          completed_at: expect.any(Date) as Date,
        })
        expect(await eventTypes(t.sql, old)).toEqual(['failed'])
      }
      expect((await readOrphan(t, fresh)).status).toBe('PENDING')
      expect(await eventTypes(t.sql, fresh)).toEqual([])
    },
  )
})

test('a mixed fleet on one table: each job by its own rule, none too early', async () => {
  await using t = await freshDatabase()
  const policy = { staleAfterSec: 3, noHeartbeatSec: 5 }
  using file = tablesFile(t.url, [{ table: 'jobs', policy }])
  const [profile] = parseProfiles([{ table: 'jobs', policy }], 'tables.json')
  if (!profile) throw new Error('no profile')
  const leases = createLeases({ db: t.db, table: profile })
  const take = async (seconds: number): Promise<Lease> => {
    const claimed = await leases.claimJob(await insertJob(t.sql, 'jobs', { stage: `'clip'` }), 'leased', seconds)
    if (!claimed.ok) throw new Error(claimed.error)
    return claimed.value.lease
  }
  const plain = (columns: object): Promise<string> =>
    insertJob(t.sql, 'jobs', { status: `'processing'`, processing_started_at: 'now()', ...columns })
  await using reaper = runProgram('reaper.ts', file.env)
  await reaper.said('reaper started')
  const [leased, beating, silent] = [await take(3), await plain({ last_heartbeat_at: 'now()' }), await plain({})]
  const dead = {
    lease_expired: (await take(2)).id,
    heartbeat_stale: await plain({ last_heartbeat_at: 'now()' }),
    no_heartbeat: await plain({}),
  }
  const deadlines = await Promise.all(
    Object.entries(dead).map(async ([rule, id]) => {
      const row = await readJob(t.sql, 'jobs', id)
      const from = {
        lease_expired: row.lease_expires_at,
        heartbeat_stale: row.last_heartbeat_at && new Date(row.last_heartbeat_at.getTime() + 3000),
        no_heartbeat: row.processing_started_at && new Date(row.processing_started_at.getTime() + 5000),
      }[rule]
      return { id, rule, deadline: from }
    }),
  )
  // The living go on: one renews its lease, one only writes its heartbeat, one does neither and is done in time.
  const beats = setInterval(() => {
    void leases.heartbeatJob(leased)
    void t.sql`update jobs set last_heartbeat_at = now() where id = ${beating} and status = 'processing'`.execute()
  }, 300)
  try {
    setTimeout(
      () => void t.sql`update jobs set status = 'done' where id = ${silent} and status = 'processing'`.execute(),
      3500,
    )
    for (const { id, rule, deadline } of deadlines) {
      await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { what: rule })
      const [told] = await readEvents(t.sql, id).then((events) =>
        events.filter(({ type }) => type === 'reaper:requeued'),
      )
      expect(told?.details.reason).toBe(rule)
      expect(new Date(told?.at ?? '').getTime()).toBeGreaterThanOrEqual(deadline?.getTime() ?? Infinity)
    }
    expect((await readJob(t.sql, 'jobs', leased.id)).status).toBe('processing')
    expect((await readJob(t.sql, 'jobs', beating)).status).toBe('processing')
    expect((await readJob(t.sql, 'jobs', silent)).status).toBe('done')
  } finally {
    clearInterval(beats)
  }
  for (const id of [leased.id, beating])
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { what: 'the last two' })
}, 30_000)

describe('a table that does not fit', () => {
  const wrong = { table: 'asr_jobs', statuses: { processing: 'running' }, columns: { holder: 'lokced_by' } }

  test('is refused by the reaper by name, and the others are reaped', async () => {
    await using t = await freshDatabase()
    using file = tablesFile(t.url, [wrong, { table: 'gone' }, { table: 'jobs' }])
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    const untouched = await insertJob(t.sql, 'asr_jobs', EXPIRED)
    await using reaper: Program = runProgram('reaper.ts', file.env)
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', { what: reaper.output() })
    const refused = await eventually(() => {
      const lines = reaper.lines().filter((line) => line.msg === 'table refused')
      return lines.length >= 2 ? lines : null
    })
    expect(refused.map(({ table }) => String(table)).toSorted()).toEqual(['asr_jobs', 'gone'])
    expect(JSON.stringify(refused)).toContain('did you mean locked_by?')
    const { http } = await reaper.said('reaper started')
    const ready = await fetch(`${String(http)}/readyz`)
    expect(ready.status).toBe(503)
    expect(await ready.text()).toMatch(/asr_jobs[\s\S]*gone/)
    expect(await readJob(t.sql, 'asr_jobs', untouched)).toMatchObject({
      status: 'processing',
      locked_by: 'dead-worker',
    })
  })

  test('is refused by the worker by name, and the others are worked on', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    using file = tablesFile(t.url, [wrong, { table: 'jobs' }])
    const id = await insertJob(t.sql, 'jobs', { stage: `'clip'`, payload: `'{}'` })
    await using worker = startWorker(t.url, place, file.env)
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'done', { what: worker.output() })
    expect(String((await worker.said('no jobs can be taken')).obstacle)).toContain('lokced_by')
  })
})

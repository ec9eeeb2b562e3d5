/** Rows, events and tables as nobody should have made them: an operator still sees the job, and can still act. */
import { describe, expect, test } from 'bun:test'

import type { Profile } from '../../src/db/profile.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import { TableRejected } from '../../src/db/table.ts'
import { createPgBossDispatcher } from '../../src/dispatch/pgboss.ts'
import { silentLog } from '../../src/telemetry/log.ts'
import { operatorOn } from '../support/operator.ts'
import { TEAMS, teamDatabase } from '../support/profiles.ts'
import { freshDatabase } from '../support/database.ts'
import { eventTypes, EXPIRED, HELD, insertJob, insertMany, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const JOBS = snakeCaseProfile('jobs')
const DEED = { actor: 'Ana', reason: 'the disk was full' }
const FIVE_MB = `repeat('<b>\u001b[31m', 555555)`
const FAILED = { status: `'failed'`, attempt_count: '1', fail_code: `'DISK'` }

const team = (title: string): (typeof TEAMS)[number] => {
  const found = TEAMS.find((each) => each.title.startsWith(title))
  if (!found) throw new Error(`no team ${title}`)
  return found
}

describe('texts', () => {
  test('5 MB in every text of a row and of its events come out short, and the job can be found, listed and acted upon', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    const long = { stage: FIVE_MB, locked_by: FIVE_MB, fail_code: FIVE_MB, fail_reason: FIVE_MB }
    const id = await insertJob(t.sql, 'jobs', { ...HELD, ...long, payload: `to_jsonb(${FIVE_MB})` })
    await t.sql.unsafe(
      `insert into job_events (job_id, data) select $1, jsonb_build_object('type', ${FIVE_MB}, 'table', 'jobs', 'at', ${FIVE_MB}, 'details', jsonb_build_object('attempt', 1, 'holder', ${FIVE_MB})) from generate_series(1, 5)`,
      [id],
    )
    const [found] = await operator.find(id)
    expect(found?.timeline).toHaveLength(5)
    expect(found?.timeline[0]?.details.cut).toMatch(/^too large to be shown: \d+ bytes as stored$/)
    const answers = [
      found,
      await operator.leases(),
      await operator.workers(),
      (await operator.jobs('jobs', { filter: {} })).jobs,
      await operator.dryRun('jobs'),
    ]
    for (const answer of answers) expect(JSON.stringify(answer).length).toBeLessThan(120_000)
    expect(found?.fields.find(({ name }) => name === 'payload')).toMatchObject({ isCut: true })

    // What is shown cut is still a filter that finds it, and a guard that holds.
    const [lease] = await operator.leases()
    expect(await operator.leases({ holder: lease?.holder ?? null })).toHaveLength(1)
    const seen = { status: 'processing', attempt: 1, holder: lease?.holder } as const
    expect(await operator.act('cancel', { table: 'jobs', id, seen }, DEED)).toMatchObject({ ok: true })
    const [group] = (await operator.failures()).flatMap(({ groups }) => groups)
    expect(group).toMatchObject({ code: 'cancelled', jobs: 1 })
    expect(await operator.count('jobs', { stage: group?.stage ?? null })).toBe(1)
  })

  test('a bulk action by a text that was cut finds all that begin with it', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    await insertMany(t.sql, 'jobs', 3, { ...FAILED, stage: FIVE_MB })
    const [group] = (await operator.failures()).flatMap(({ groups }) => groups)
    const which = { table: 'jobs', filter: { stage: group?.stage ?? '' }, atMost: 10 }
    expect(await operator.actOnAll('retry', which, DEED)).toEqual({ ok: true, value: 3 })
  })

  test('a json column may hold what jsonb refuses: the events around it, the row and the plots are still read', async () => {
    await using t = await teamDatabase(team('own schema'))
    const operator = operatorOn(t.db, [t.profile])
    const id = await t.put()
    await t.sql`alter table media.jobs disable trigger user`
    await t.sql`alter table media.job_log disable trigger user`
    const bad = ['\\u0000', '\\ud800', '\\udc00 \\ud83d', 'fine \\ud83d\\ude00', 'fine \\\\u0000']
    await t.sql.unsafe(`alter table media.jobs add payload json, add bits bytea, add parts text[]`)
    for (const text of bad) {
      await t.sql`insert into media.job_log (job_id, type, ts, data) values (${id}, 'x', now(), ${`{"type":"own","table":"media.jobs","note":"${text}"}`}::text::json)`
    }
    await t.sql`update media.jobs set payload = ${'{"a":"\\u0000"}'}::text::json, bits = '\\x00ff', parts = '{a,"b c"}' where id = ${id}`
    const again = operatorOn(t.db, [t.profile])
    const [found] = await again.find(id)
    expect(found?.timeline).toHaveLength(5)
    expect(found?.timeline.filter(({ details }) => 'unreadable' in details)).toHaveLength(3)
    expect(
      found?.timeline
        .map(({ details }) => details.note)
        .filter(Boolean)
        .toSorted(),
    ).toEqual(['fine \\u0000', 'fine 😀'])
    expect(found?.fields.filter(({ name }) => ['payload', 'bits', 'parts'].includes(name))).toEqual([
      { name: 'payload', value: '{"a":"\\u0000"}', isCut: false },
      { name: 'bits', value: '\\x00ff', isCut: false },
      { name: 'parts', value: '{a,"b c"}', isCut: false },
    ])
    await operator.sampleHistory()
    expect(await operator.act('cancel', { table: t.profile.table, id }, DEED)).toMatchObject({ ok: true })
  })
})

describe('statuses', () => {
  test('a word that is none of ours, or none at all, is shown as it is, and nothing can be done', async () => {
    await using t = await freshDatabase()
    await t.sql`alter table jobs alter status drop not null`
    const operator = operatorOn(t.db, [JOBS])
    for (const [status, word] of [
      [`'paused'`, 'paused'],
      ['null', 'NULL'],
    ] as const) {
      const id = await insertJob(t.sql, 'jobs', { ...EXPIRED, status })
      const [found] = await operator.find(id)
      expect(found?.job).toMatchObject({ status: null, word, endsAt: null, rule: null, outcome: null })
      expect(found?.explanation.now).toContain(`its status is ${word}`)
      for (const action of ['retry', 'cancel', 'end-lease'] as const) {
        const answer = await operator.act(action, { table: 'jobs', id }, DEED)
        expect(answer).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
        expect(answer.ok ? '' : answer.error).toContain(`its status is ${word}`)
      }
      expect(await eventTypes(t.sql, id)).toEqual([])
    }
    expect((await operator.jobs('jobs', { filter: {} })).jobs).toHaveLength(2)
  })
})

describe('events', () => {
  test('without an events table a job is seen and acted upon all the same', async () => {
    await using t = await freshDatabase()
    const silent: Profile = { ...JOBS, events: null }
    await t.sql`drop table job_events cascade`
    const operator = operatorOn(t.db, [silent])
    const id = await insertJob(t.sql, 'jobs', HELD)
    expect(await operator.find(id)).toMatchObject([{ timeline: [], attempts: [] }])
    expect(await operator.events('jobs', id)).toEqual([])
    expect(await operator.act('end-lease', { table: 'jobs', id }, DEED)).toMatchObject({ ok: true })
    expect((await readJob(t.sql, 'jobs', id)).status).toBe('queued')
    await operator.sampleHistory()
    expect(operator.history()).toMatchObject([{ hasEvents: false }])
  })

  test('data that is no object, no attempt, or an attempt beyond all numbers, breaks nothing', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    const id = await insertJob(t.sql, 'jobs', { ...FAILED })
    const odd = [
      '7',
      '"text"',
      'null',
      '[1, 2]',
      '{}',
      '{"type": 5, "at": {"a": 1}, "details": "text"}',
      '{"type": "processing", "table": "jobs", "details": {"attempt": 1e400}}',
      '{"type": "processing", "table": "jobs", "details": {"attempt": "1"}}',
      '{"type": "processing", "table": "jobs", "details": {"attempt": -0.5}}',
      '{"type": "processing", "table": "jobs", "at": "never", "details": {"attempt": 1, "holder": ["a"]}}',
      '{"type": "failed", "table": "jobs", "at": "later", "details": {"attempt": 1, "code": 7}}',
    ]
    await t.sql`alter table job_events disable trigger user`
    for (const data of odd) await t.sql`insert into job_events (job_id, data) values (${id}, ${data}::text::jsonb)`
    const [found] = await operator.find(id)
    expect(found?.timeline).toHaveLength(odd.length)
    expect(found?.timeline[0]).toEqual({ at: null, type: '', details: { data: 7 } })
    expect(found?.attempts).toEqual([
      {
        attempt: 1,
        holder: null,
        startedAt: 'never',
        endedAt: 'later',
        durationSec: null,
        end: 'failed',
        code: null,
        reason: null,
      },
    ])
    await operator.sampleHistory()
    expect(operator.history()[0]?.minutes).toHaveLength(60)
  })

  test('much progress does not push the beginning of its attempt out of sight', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    const id = await insertJob(t.sql, 'jobs', HELD)
    await t.sql`alter table job_events disable trigger user`
    await t.sql`
      insert into job_events (job_id, data)
      select ${id}, jsonb_build_object('type', case n when 0 then 'processing' else 'progress' end, 'table', 'jobs', 'at',
        to_char(now() + n * interval '1 second', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'details', jsonb_build_object('attempt', 1, 'holder', 'h', 'pct', n))
      from generate_series(0, 3000) n`
    const [found] = await operator.find(id)
    expect(found?.attempts).toMatchObject([{ attempt: 1, holder: 'h', end: null }])
    expect(await operator.events('jobs', id, 500)).toHaveLength(500)
    expect(found?.timeline).toMatchObject([{ type: 'progress', details: { from: 2501, pct: 3000, told: 500 } }])
  })

  test('where ours stand beside the team’s own table, the timeline shows both', async () => {
    await using t = await teamDatabase(team('orphan'))
    const operator = operatorOn(t.db, [t.profile])
    const id = await t.put()
    await t.sql`insert into job_events (job_id, tenant, data) values (${id}, gen_random_uuid(), '{"note": "uploaded by the app"}')`
    await operator.act('cancel', { table: t.profile.table, id }, DEED)
    const [found] = await operator.find(id)
    expect(found?.timeline.map(({ type }) => type).toSorted()).toEqual(['', 'operator:cancel'])
    expect(found?.timeline[0]?.details).toEqual({ note: 'uploaded by the app' })
  })

  test('an id spelled in another way finds its events too', async () => {
    await using t = await freshDatabase()
    await t.sql`alter table job_events drop constraint if exists job_events_job_id_fkey, alter job_id type text`
    const operator = operatorOn(t.db, [JOBS])
    const id = await insertJob(t.sql, 'jobs')
    expect(await operator.act('cancel', { table: 'jobs', id: id.toUpperCase() }, DEED)).toMatchObject({
      ok: true,
      value: { id },
    })
    expect((await operator.find(id.toUpperCase()))[0]?.timeline).toHaveLength(1)
    expect(await operator.events('jobs', id.toUpperCase())).toHaveLength(1)
  })
})

describe('tables', () => {
  test('one that is refused is an obstacle in the overview, and does not hide the others', async () => {
    await using t = await freshDatabase()
    await t.sql`drop table asr_jobs`
    const operator = operatorOn(t.db, [JOBS, snakeCaseProfile('asr_jobs')])
    const id = await insertJob(t.sql, 'jobs', HELD)
    const { health, tables } = await operator.overview()
    expect(health).toMatchObject({ level: 'unhealthy' })
    expect(health.sentence).toContain('there is no table asr_jobs')
    expect(tables).toMatchObject([
      { obstacle: null, processing: 1 },
      { table: 'asr_jobs', processing: 0 },
    ])
    expect(await operator.leases()).toHaveLength(1)
    expect(await operator.workers()).toHaveLength(1)
    expect(await operator.failures()).toHaveLength(1)
    expect((await operator.drain(25)).jobs).toHaveLength(1)
    expect(await operator.find(id)).toHaveLength(1)
    await operator.sampleHistory()
    expect(operator.history()[0]?.minutes.at(-1)?.processing).toBe(1)
    // It may stand in the very table that could not be asked.
    expect(operator.find('00000000-0000-0000-0000-000000000000')).rejects.toBeInstanceOf(TableRejected)
    expect(operator.leases({ table: 'asr_jobs' })).rejects.toBeInstanceOf(TableRejected)
    expect(operator.leases({ table: 'nope' })).rejects.toThrow('there is no table nope here, only jobs, asr_jobs')
  })

  test('a job with one id in two tables is shown in both, each with its own events', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS, snakeCaseProfile('asr_jobs')])
    const id = await insertJob(t.sql, 'jobs')
    await insertJob(t.sql, 'asr_jobs', { id: `'${id}'` })
    await operator.act('cancel', { table: 'asr_jobs', id }, DEED)
    const found = await operator.find(id)
    expect(found.map(({ job, timeline }) => [job.table, job.status, timeline.length])).toEqual([
      ['jobs', 'queued', 0],
      ['asr_jobs', 'failed', 1],
    ])
  })

  test('after a restart of the database a job gets its grace, and everything that is told says so', async () => {
    await using t = await freshDatabase()
    // With a heartbeat this long the tests' server has restarted a moment ago.
    const operator = operatorOn(t.db, [JOBS], { heartbeatSec: 1_000_000 })
    const long = `now() - interval '30 days'`
    const old = { lease_expires_at: long, last_heartbeat_at: long, processing_started_at: long }
    const id = await insertJob(t.sql, 'jobs', { ...EXPIRED, ...old })
    const { health, tables } = await operator.overview()
    expect(tables).toMatchObject([{ processing: 1, expired: 0, spared: 1 }])
    expect(health).toMatchObject({ level: 'attention' })
    expect(health.sentence).toBe('jobs: the database was away; 1 job still has time to check in')
    const [found] = await operator.find(id)
    expect(found?.job.isSpared).toBe(true)
    expect(found?.explanation.next).toContain('its holder still gets the chance to check in')
    expect(await operator.dryRun('jobs')).toEqual([])
  })

  test('a read-only database is said to be one', async () => {
    await using t = await freshDatabase()
    await t.sql.unsafe(`alter database ${new URL(t.url).pathname.slice(1)} set default_transaction_read_only = on`)
    const operator = operatorOn(t.open(), [JOBS])
    expect((await operator.overview()).health).toMatchObject({ level: 'unhealthy' })
    expect((await operator.overview()).health.sentence).toContain('read-only')
  })

  test('a job that its table refuses to move is told with the table’s own words, and the others are moved', async () => {
    await using t = await freshDatabase()
    await t.sql`alter table jobs add owner int`
    await t.sql`create unique index one_at_a_time on jobs (owner) where status in ('queued', 'processing')`
    const operator = operatorOn(t.db, [JOBS])
    await insertJob(t.sql, 'jobs', { owner: '1' })
    const id = await insertJob(t.sql, 'jobs', { ...FAILED, owner: '1' })
    await insertMany(t.sql, 'jobs', 30, FAILED)
    const answer = await operator.act('retry', { table: 'jobs', id }, DEED)
    expect(answer).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
    expect(answer.ok ? '' : answer.error).toContain('one_at_a_time')
    let refused: readonly { id: string; why: string }[] = []
    const onProgress = (_: number, told: typeof refused): void => {
      refused = told
    }
    const which = { table: 'jobs', filter: {}, atMost: 1000 }
    expect(await operator.actOnAll('retry', which, DEED, onProgress)).toEqual({ ok: true, value: 30 })
    expect(refused).toMatchObject([{ id }])
    expect(await eventTypes(t.sql, id)).toEqual([])
    expect((await readJob(t.sql, 'jobs', id)).status).toBe('failed')
    const rest = await operator.actOnAll('retry', which, DEED)
    expect(rest).toMatchObject({ ok: false, code: 'NOT_ALLOWED' })
    expect(await brokenInvariants(t.sql)).toEqual([])
  })

  test('a job that fails again at once is retried once by a retry of all', async () => {
    await using t = await freshDatabase()
    await t.sql
      .unsafe(
        `
      create function poison() returns trigger language plpgsql as $$ begin new.status := 'failed'; return new; end $$;
      create trigger poison before update on jobs for each row when (new.status = 'queued') execute function poison()`,
      )
      .simple()
    const operator = operatorOn(t.db, [JOBS])
    await insertMany(t.sql, 'jobs', 3, FAILED)
    const which = { table: 'jobs', filter: {}, atMost: 1000 }
    expect(await operator.actOnAll('retry', which, DEED)).toEqual({ ok: true, value: 3 })
    const [told] = await t.sql`select count(*)::int as events, max(max_attempts) as most from job_events, jobs`
    expect(told).toEqual({ events: 9, most: 3 })
  })

  test('attempts that could not be counted any more are not retried', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    const most = await insertJob(t.sql, 'jobs', { ...FAILED, attempt_count: '2147483647' })
    const fewer = await insertJob(t.sql, 'jobs', { ...FAILED, attempt_count: '2147483646' })
    const answer = await operator.act('retry', { table: 'jobs', id: most }, DEED)
    expect(answer).toEqual({
      ok: false,
      code: 'NOT_ALLOWED',
      error: 'the table refuses it: 22003: integer out of range',
    })
    expect(await operator.act('retry', { table: 'jobs', id: fewer }, DEED)).toMatchObject({ ok: true })
    expect(await readJob(t.sql, 'jobs', fewer)).toMatchObject({ status: 'queued', max_attempts: 2147483647 })
    expect((await readJob(t.sql, 'jobs', most)).status).toBe('failed')
  })

  test('queued jobs without an attempt left are counted and named, because no claim takes them', async () => {
    await using t = await freshDatabase()
    const operator = operatorOn(t.db, [JOBS])
    await insertMany(t.sql, 'jobs', 2, { attempt_count: '3', max_attempts: '3' })
    const { health, tables } = await operator.overview()
    expect(tables[0]).toMatchObject({ queued: 2, due: 0, exhausted: 2 })
    expect(health).toMatchObject({ level: 'unhealthy' })
    expect(health.sentence).toContain('2 queued jobs without an attempt left')
  })
})

test('what becomes due by hand is published, and what is cancelled is not', async () => {
  await using t = await freshDatabase()
  const dispatch = await createPgBossDispatcher({ url: t.url, schema: 'pgboss', log: silentLog, timeoutSec: 5 })
  try {
    // Without a column for the due time, what is requeued may run at once.
    const hasty: Profile = { ...JOBS, columns: { ...JOBS.columns, nextRunAt: null } }
    const operator = operatorOn(t.db, [hasty], { dispatch })
    const failed = await insertJob(t.sql, 'jobs', FAILED)
    const waiting = await insertJob(t.sql, 'jobs')
    const held = await insertJob(t.sql, 'jobs', HELD)
    const spent = await insertJob(t.sql, 'jobs', { ...HELD, attempt_count: '3' })
    await operator.act('retry', { table: 'jobs', id: failed }, DEED)
    await operator.act('cancel', { table: 'jobs', id: waiting }, DEED)
    await operator.act('end-lease', { table: 'jobs', id: held }, DEED)
    await operator.act('end-lease', { table: 'jobs', id: spent }, DEED)
    expect((await dispatch.fetch('jobs', 10)).toSorted()).toEqual([failed, held].toSorted())
  } finally {
    await dispatch.close()
  }
})

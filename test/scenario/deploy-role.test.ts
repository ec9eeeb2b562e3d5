/** The role of docs/deploy/role.sql can do all the work there is, and nothing else. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import postgres, { type Sql } from 'postgres'

import { createLeases } from '../../src/worker/lease.ts'
import { runCli } from '../support/cli.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { STAGES } from '../support/operator.ts'
import { ROOT, runProgram } from '../support/program.ts'
import { eventTypes, EXPIRED, insertJob, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'
import { openPlace, startWorker } from '../support/worker.ts'

const ROLE = `service_${randomBytes(4).toString('hex')}`
const PASSWORD = randomBytes(12).toString('hex')
const TEXT = readFileSync(join(ROOT, 'docs', 'deploy', 'role.sql'), 'utf8')
const SCRIPT = TEXT.replaceAll('leasehold_service', ROLE).replaceAll('change me', PASSWORD)

let t: TestDatabase
let url: string
let asRole: Sql

beforeAll(async () => {
  t = await freshDatabase()
  // The witness writes down what happens, whoever does it.
  await t.sql`alter function witness_change() security definer`
  await t.sql.unsafe(SCRIPT).simple()
  // Run again, as it says of itself.
  await t.sql.unsafe(SCRIPT).simple()
  const target = new URL(t.url)
  target.username = ROLE
  target.password = PASSWORD
  url = target.toString()
  asRole = postgres(url, { max: 1, onnotice: () => undefined })
})
afterAll(async () => {
  expect(await brokenInvariants(t.sql)).toEqual([])
  await asRole.end()
  await t.sql.unsafe(`drop owned by ${ROLE}`)
  await t.sql.unsafe(`drop role ${ROLE}`)
  await t[Symbol.asyncDispose]()
})

describe('the role can', () => {
  test('claim, renew and finish, well and badly', async () => {
    const leases = createLeases({ db: t.open({ url }), table: 'jobs', stages: STAGES })
    const [first, second] = [await insertJob(t.sql, 'jobs'), await insertJob(t.sql, 'jobs')]
    const claimed = await leases.claimNext({ workerId: 'host-1', limit: 2 })
    if (!claimed.ok) throw new Error(claimed.error)
    const held = claimed.value.map(({ lease }) => lease)
    expect(held.map(({ id }) => id).toSorted()).toEqual([first, second].toSorted())
    expect(await leases.heartbeatJobs(held)).toMatchObject({ ok: true, value: { lost: [] } })
    const [one, other] = held
    if (!one || !other) throw new Error('two leases were claimed')
    expect(await leases.finishJob(one, true)).toMatchObject({ ok: true, value: { status: 'done' } })
    expect(await leases.finishJob(other, false, { code: 'VALIDATION', reason: 'no such codec' })).toMatchObject({
      value: { status: 'failed' },
    })
  })

  test('run a worker, with progress, events and a job given back at a shutdown', async () => {
    using place = openPlace()
    await using worker = startWorker(url, place, { SHUTDOWN_TIMEOUT_SEC: '0.1' })
    const done = await insertJob(t.sql, 'jobs', { payload: `'{"progress": [50], "publish": "a clip"}'` })
    const long = await insertJob(t.sql, 'jobs', { payload: `'{"ms": 600000}'` })
    await eventually(async () => (await readJob(t.sql, 'jobs', done)).status === 'done')
    await eventually(async () => (await readJob(t.sql, 'jobs', long)).status === 'processing')
    worker.process.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
    expect(await eventTypes(t.sql, done)).toContain('progress')
    expect((await eventTypes(t.sql, long)).at(-1)).toBe('aborted:shutdown')
    expect((await runCli(['cancel', long, '--reason', 'not needed'], { DATABASE_URL: url })).code).toBe(0)
  })

  test('reap both tables, as a service whose readiness finds nothing in the way', async () => {
    const rows = await Promise.all(
      ['jobs', 'asr_jobs'].map(async (table) => ({
        table,
        requeued: await insertJob(t.sql, table, EXPIRED),
        failed: await insertJob(t.sql, table, { ...EXPIRED, attempt_count: '3' }),
      })),
    )
    await using reaper = runProgram('reaper.ts', { DATABASE_URL: url, HEARTBEAT_SEC: '0.2' })
    const http = String((await reaper.said('reaper started')).http)
    for (const { table, requeued, failed } of rows) {
      await eventually(async () => (await readJob(t.sql, table, requeued)).status === 'queued')
      await eventually(async () => (await readJob(t.sql, table, failed)).status === 'failed')
    }
    // The rows move a moment before their pass is over.
    await eventually(async () => (await fetch(`${http}/readyz`)).status === 200)
    expect(reaper.lines().filter(({ level }) => level === 'error')).toEqual([])
  })

  test.each([
    'status',
    'list',
    'leases',
    'failures',
    'workers',
    'drain --plan',
    'reap --once --dry-run',
    'reap --once',
    'doctor',
  ])('be asked with leasehold %s', async (command) => {
    const { code, stderr } = await runCli(command.split(' '), { DATABASE_URL: url })
    expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' })
  })

  test('explain, retry, cancel and end a lease by hand', async () => {
    const env = { DATABASE_URL: url }
    const id = await insertJob(t.sql, 'jobs', { ...EXPIRED, lease_expires_at: `now() + interval '1 hour'` })
    expect((await runCli(['explain', id, '--fields'], env)).stdout).toContain('dead-worker')
    expect((await runCli(['end-lease', id, '--reason', 'gone'], env)).code).toBe(0)
    expect((await runCli(['cancel', id, '--reason', 'not needed'], env)).code).toBe(0)
    expect((await runCli(['retry', id, '--reason', 'needed after all'], env)).code).toBe(0)
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ status: 'queued', max_attempts: 3 })
    expect((await runCli(['events', id], env)).stdout).toContain('needed after all')
  })
})

describe('the role cannot', () => {
  test.each([
    ['put jobs in', `insert into jobs default values`],
    ['delete jobs', `delete from jobs`],
    ['empty a table', `truncate jobs`],
    ['change what a job is about', `update jobs set payload = '{}'`],
    ['rewrite events', `update job_events set data = '{}'`],
    ['delete events', `delete from job_events`],
    ['change a table', `alter table jobs add column mine integer`],
    ['drop a table', `drop table job_events`],
    ['make a table', `create table mine (id integer)`],
    ['make a schema', `create schema mine`],
    ['make a role', `create role mine`],
    ['read other tables', `select * from witness`],
    ['become somebody else', `set role postgres`],
  ])('%s', async (_, statement) => {
    await expect(Promise.resolve(asRole.unsafe(statement))).rejects.toMatchObject({ code: '42501' })
  })
})

test('a column that is left out is named by the doctor, with the grant that mends it', async () => {
  await t.sql.unsafe(`revoke update (fail_reason) on jobs from ${ROLE}`)
  const { code, stdout } = await runCli(['doctor'], { DATABASE_URL: url })
  await t.sql.unsafe(SCRIPT).simple()
  expect(code).not.toBe(0)
  expect(stdout).toContain('not allowed to write fail_reason')
  expect((await runCli(['doctor'], { DATABASE_URL: url })).code).toBe(0)
})

/** bun run start:reaper as a user runs it: a real process, real signals, real nonsense in its environment. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'

import { startCluster } from '../support/cluster.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { openFolder } from '../support/open-folder.ts'
import { type Program, ROOT, runProgram } from '../support/program.ts'
import { eventTypes, EXPIRED, HELD, insertJob, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

/** The test server was started a moment ago; short heartbeats keep the grace after a restart short too. */
const QUICK = { HEARTBEAT_SEC: '0.2' }

async function addressOf(reaper: Program): Promise<string> {
  return String((await reaper.said('reaper started')).http)
}

async function get(url: string): Promise<{ status: number; text: string; tookMs: number }> {
  const startedAt = performance.now()
  const answer = await fetch(url)
  const text = await answer.text()
  return { status: answer.status, text, tookMs: performance.now() - startedAt }
}

describe('on a database of the team', () => {
  let t: TestDatabase
  beforeAll(async () => {
    t = await freshDatabase()
  })
  afterAll(async () => {
    expect(await brokenInvariants(t.sql)).toEqual([])
    await t[Symbol.asyncDispose]()
  })

  test('both tables are reaped within one wake, counted and told', async () => {
    await using reaper = runProgram('reaper.ts', { ...QUICK, DATABASE_URL: t.url })
    const http = await addressOf(reaper)
    await eventually(async () => (await get(`${http}/readyz`)).status === 200)
    expect(await get(`${http}/healthz`)).toMatchObject({ status: 200 })
    reaper.process.kill('SIGTERM')
    expect(await reaper.ended).toEqual({ code: 0, signal: null })

    const rows = await Promise.all(
      ['jobs', 'asr_jobs'].map(async (table) => ({
        table,
        requeued: await insertJob(t.sql, table, { ...EXPIRED, stage: `'clip'` }),
        failed: await insertJob(t.sql, table, { ...EXPIRED, stage: `'asr'`, attempt_count: '3' }),
        live: await insertJob(t.sql, table, HELD),
      })),
    )
    await using second = runProgram('reaper.ts', { ...QUICK, DATABASE_URL: t.url })
    const address = await addressOf(second)
    await eventually(async () =>
      (await Promise.all(rows.map((row) => readJob(t.sql, row.table, row.failed)))).every(
        (row) => row.status === 'failed',
      ),
    )
    for (const { table, requeued, failed, live } of rows) {
      expect(await readJob(t.sql, table, requeued)).toMatchObject({
        status: 'queued',
        locked_by: null,
        lease_expires_at: null,
      })
      expect(await eventTypes(t.sql, requeued)).toEqual(['reaper:requeued', 'requeued:stale'])
      expect(await readJob(t.sql, table, failed)).toMatchObject({
        status: 'failed',
        fail_code: 'timeout',
        fail_reason: 'lease_expired',
      })
      expect(await eventTypes(t.sql, failed)).toEqual(['reaper:failed(timeout)'])
      expect((await readJob(t.sql, table, live)).status).toBe('processing')
      await eventually(async () =>
        (await get(`${address}/metrics`)).text.includes(`reaper_requeues_total{table="${table}",stage="clip"} 1`),
      )
      expect((await get(`${address}/metrics`)).text).toContain(`reaper_failures_total{table="${table}",stage="asr"} 1`)
    }
    second.process.kill('SIGINT')
    expect(await second.ended).toEqual({ code: 0, signal: null })
    expect(second.lines().filter((line) => line.msg === 'job requeued')).toHaveLength(2)
  })

  test('without the tables it refuses them by name, says what to do, and starts as soon as they are there (D14)', async () => {
    await using empty = await freshDatabase()
    await empty.sql`alter table asr_jobs rename to asr_jobs_away`
    await using reaper = runProgram('reaper.ts', { ...QUICK, DATABASE_URL: empty.url, REAPER_INTERVAL_SEC: '0.5' })
    const refused = await reaper.said('table refused')
    expect(String(refused.obstacle)).toContain('there is no table asr_jobs: run bun run migrate')
    const http = await addressOf(reaper)
    expect(await get(`${http}/readyz`)).toMatchObject({ status: 503 })
    const id = await insertJob(empty.sql, 'jobs', EXPIRED)
    await eventually(async () => (await readJob(empty.sql, 'jobs', id)).status === 'queued', {
      what: 'jobs is still reaped',
    })
    await empty.sql`alter table asr_jobs_away rename to asr_jobs`
    await eventually(async () => (await get(`${http}/readyz`)).status === 200, {
      what: 'ready after the table came back',
    })
  })

  test('the password reaches no output, whatever happens (Q10)', async () => {
    const url = new URL(t.url)
    url.password = 'canary-hunter2'
    await using reaper = runProgram('reaper.ts', { DATABASE_URL: url.toString(), LOG_LEVEL: 'trace' })
    await eventually(() => reaper.output().includes('password authentication failed'))
    const http = await addressOf(reaper)
    const seen = reaper.output() + (await get(`${http}/metrics`)).text + (await get(`${http}/readyz`)).text
    expect(seen).not.toContain('canary-hunter2')
  })

  test('R8: a closed standard output does not stop the work', async () => {
    const child = spawn('bash', ['-c', `"${process.execPath}" --no-env-file scripts/reaper.ts | head -1`], {
      cwd: ROOT,
      env: {
        PATH: process.env.PATH ?? '',
        ...QUICK,
        DATABASE_URL: t.url,
        HTTP_PORT: '0',
        REAPER_INTERVAL_SEC: '0.3',
        LOG_LEVEL: 'debug',
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    await eventually(() => child.stdout.read() !== null)
    await Bun.sleep(800)
    const id = await insertJob(t.sql, 'jobs', EXPIRED)
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'queued', {
      what: 'reaped with a broken log',
    })
    process.kill(-(child.pid ?? 0), 'SIGKILL')
  })
})

describe('an environment that makes no sense', () => {
  test.each([
    [{ REAPER_INTERVAL_SEC: '' }, 'REAPER_INTERVAL_SEC: expected a number of seconds'],
    [{ REAPER_INTERVAL_SEC: '-5' }, 'REAPER_INTERVAL_SEC'],
    [{ REAPER_INTERVAL_SEC: '10s' }, 'REAPER_INTERVAL_SEC'],
    [{ REAPER_INTERVAL_SEC: 'NaN' }, 'REAPER_INTERVAL_SEC'],
    [{ HEARTBEAT_SEC: '500' }, 'DEFAULT_LEASE_SEC: expected at least two heartbeats'],
    [{ DATABASE_URL: 'not a url' }, 'DATABASE_URL: expected a PostgreSQL URL'],
  ])('%p stops the start with exit code 2', async (env, message) => {
    await using reaper = runProgram('reaper.ts', env)
    expect(await reaper.ended).toEqual({ code: 2, signal: null })
    expect(reaper.output()).toContain(message)
  })

  test('a port that is taken is named', async () => {
    const taken = Bun.serve({ port: 0, hostname: '127.0.0.1', fetch: () => new Response('mine') })
    await using reaper = runProgram('reaper.ts', {
      DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d',
      HTTP_PORT: String(taken.port),
    })
    expect((await reaper.ended).code).toBe(1)
    expect(reaper.output()).toContain(`HTTP_PORT: port ${taken.port} is taken`)
    await taken.stop(true)
  })

  test('a second reaper does not share the port of the first unnoticed', async () => {
    await using first = runProgram('reaper.ts', { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d' })
    const { port } = new URL(await addressOf(first))
    await using second = runProgram('reaper.ts', { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d', HTTP_PORT: port })
    expect((await second.ended).code).toBe(1)
    expect(second.output()).toContain(`HTTP_PORT: port ${port} is taken`)
  })

  test.each(['10.255.255.1', '256.1.1.1', 'no-such-name.invalid'])(
    'HTTP_HOST=%s, which is not of this machine, ends with exit code 2 and what was expected',
    async (host) => {
      const token = 'a-token-for-tests-only'
      const env = { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d', HTTP_HOST: host, OPERATOR_TOKEN: token }
      await using reaper = runProgram('reaper.ts', env)
      expect((await reaper.ended).code).toBe(2)
      expect(reaper.output()).toContain(
        `HTTP_HOST: expected an address of this machine, such as 127.0.0.1, got ${host}`,
      )
      expect(reaper.output()).not.toContain('at <anonymous>')
    },
  )
})

describe('a database that comes and goes', () => {
  test('one that is away at the start is waited for, visibly; /metrics answers meanwhile (Q13)', async () => {
    await using cluster = await startCluster()
    await cluster.stop()
    await using reaper = runProgram('reaper.ts', { DATABASE_URL: cluster.url, REAPER_INTERVAL_SEC: '1' })
    const http = await addressOf(reaper)
    expect(String((await reaper.said('waiting for the database')).obstacle)).toContain(new URL(cluster.url).host)
    const tries: Awaited<ReturnType<typeof get>>[] = []
    for (let tried = 0; tried < 5; tried += 1) tries.push(await get(`${http}/metrics`))
    expect(tries.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
    // The quickest: a busy machine may hold up one of them, a wait for the database all.
    expect(Math.min(...tries.map(({ tookMs }) => tookMs))).toBeLessThan(500)
    expect(tries[0]?.text).toContain('database_up 0')
    expect((await get(`${http}/readyz`)).status).toBe(503)
    await eventually(async () => (await get(`${http}/healthz`)).status === 503, {
      what: 'not alive after three intervals',
    })
    await cluster.start()
    await reaper.said('pass completed')
    await eventually(async () => (await get(`${http}/readyz`)).status === 200)
    expect((await get(`${http}/healthz`)).status).toBe(200)
    expect((await get(`${http}/metrics`)).text).toContain('database_up 1')
    // Told once per obstacle, not once per try.
    expect(reaper.lines().filter((line) => line.msg === 'waiting for the database').length).toBeLessThan(6)
  })
})

describe('the embedded database', () => {
  test('is started, migrated, used and stopped with the reaper; nothing is left behind', async () => {
    const dataDir = openFolder('embedded')
    await using reaper = runProgram('reaper.ts', { DATA_DIR: dataDir })
    const http = await addressOf(reaper)
    await eventually(async () => (await get(`${http}/readyz`)).status === 200)
    reaper.process.kill('SIGTERM')
    expect(await reaper.ended).toEqual({ code: 0, signal: null })

    await using again = runProgram('reaper.ts', { DATA_DIR: dataDir })
    await again.said('pass completed')
    again.process.kill('SIGKILL')
    await again.ended
    await using third = runProgram('reaper.ts', { DATA_DIR: dataDir })
    await third.said('pass completed')
    third.process.kill('SIGTERM')
    expect((await third.ended).code).toBe(0)
    rmSync(dataDir, { recursive: true, force: true })
  })
})

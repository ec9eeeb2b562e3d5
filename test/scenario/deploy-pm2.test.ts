/** The PM2 file, under the real PM2 in a home of its own. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { isAlive } from '../support/processes.ts'
import { ROOT } from '../support/program.ts'
import { insertJob, readJob } from '../support/rows.ts'
import { type TestFolder, testFolder } from '../support/test-folder.ts'
import { brokenInvariants } from '../support/witness.ts'
import { openPlace, type Place, TEST_PACE } from '../support/worker.ts'

const PM2 = Bun.which('pm2')
if (!PM2) console.warn('skipped: pm2 is not on this machine (npm install --global pm2@7.0.4)')

const ECOSYSTEM = join(ROOT, 'docs', 'deploy', 'ecosystem.config.cjs')
/** A program of its own for as long as the payload says; on a second attempt it has nothing left to do. */
const HANDLERS = `export default {
  async default({ job, lease, run }) {
    if (lease.attempt === 1) await run(['sleep', String(job.payload.sec)])
  },
}
`

interface Process {
  name: string
  pid: number
  pm2_env: { status: string; restart_time: number }
}

// CI has one; there a missing PM2 is a failure, not a skip.
describe.if(PM2 !== null || process.env.CI === 'true')('under PM2', () => {
  let t: TestDatabase
  let place: Place
  let folder: TestFolder
  let env: Record<string, string>

  beforeAll(async () => {
    t = await freshDatabase()
    place = openPlace()
    folder = testFolder()
    env = {
      PATH: process.env.PATH ?? '',
      HOME: folder.path,
      PM2_HOME: join(folder.path, 'pm2'),
      ...TEST_PACE,
      ...place.env,
      DATABASE_URL: t.url,
      REAPER_INTERVAL_SEC: '1',
      WORKER_HANDLERS: folder.write('handlers.mjs', HANDLERS),
      HTTP_PORT: '0',
      WORKER_HTTP_PORT: '0',
    }
    await pm2(['start', ECOSYSTEM])
  }, 60_000)
  afterAll(async () => {
    await pm2(['kill'])
    expect(await brokenInvariants(t.sql)).toEqual([])
    await t[Symbol.asyncDispose]()
    place[Symbol.dispose]()
    folder[Symbol.dispose]()
  }, 60_000)

  async function pm2(args: string[], more: Record<string, string> = {}): Promise<string> {
    const child = spawn(PM2 ?? 'pm2', args, { env: { ...env, ...more }, stdio: ['ignore', 'pipe', 'pipe'] })
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
    const code = await new Promise((done) => child.once('close', done))
    if (code !== 0) throw new Error(`pm2 ${args.join(' ')} ended with ${String(code)}:\n${output}`)
    return output
  }

  async function processNamed(name: string): Promise<Process> {
    const all = JSON.parse(await pm2(['jlist', '--silent'])) as Process[]
    const found = all.find((each) => each.name === name)
    if (!found) throw new Error(`PM2 runs no ${name}`)
    return found
  }

  const log = (name: string): string => readFileSync(join(env.PM2_HOME ?? '', 'logs', `${name}-out.log`), 'utf8')
  /** A free port of its own choice: one that we looked for could be somebody else's by the time it starts. */
  const addressOf = (name: string): Promise<string> =>
    eventually(() => /"http":"([^"]+)"/.exec(log(name))?.[1], { what: `the address of ${name} in its log` })
  const workerPids = (): number[] =>
    [...log('leasehold-worker').matchAll(/"childPid":(\d+)/g)].map(([, pid]) => Number(pid))

  test('both are online as soon as they are ready, not before', async () => {
    // Asked right after `pm2 start` came back: it has waited for them.
    expect((await fetch(`${await addressOf('leasehold-reaper')}/healthz`)).status).toBe(200)
    expect((await fetch(`${await addressOf('leasehold-worker')}/readyz`)).status).toBe(200)
    for (const name of ['leasehold-reaper', 'leasehold-worker']) {
      expect((await processNamed(name)).pm2_env).toMatchObject({ status: 'online', restart_time: 0 })
    }
  })

  test('pm2 stop lets a running job end, with the program that it runs', async () => {
    const id = await insertJob(t.sql, 'jobs', { payload: `'{"sec": 3}'` })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'processing')
    await pm2(['stop', 'leasehold-worker'])
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ status: 'done', attempt_count: 1 })
    expect((await processNamed('leasehold-worker')).pm2_env.status).toBe('stopped')
  })

  test('a worker that is killed with its supervisor is started again, and its job runs again', async () => {
    await pm2(['start', 'leasehold-worker'])
    const id = await insertJob(t.sql, 'jobs', { payload: `'{"sec": 600}'` })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'processing')
    const killed = [(await processNamed('leasehold-worker')).pid, workerPids().at(-1) ?? 0]
    for (const pid of killed) process.kill(pid, 'SIGKILL')
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'done', { withinMs: 30_000 })
    expect((await readJob(t.sql, 'jobs', id)).attempt_count).toBe(2)
    expect(log('leasehold-reaper')).toContain('"msg":"job requeued"')
    expect(killed.map(isAlive)).toEqual([false, false])
    expect((await processNamed('leasehold-worker')).pm2_env).toMatchObject({ status: 'online', restart_time: 1 })
  })

  test('wrong settings are not tried again and again', async () => {
    await pm2(['delete', 'leasehold-reaper'])
    await pm2(['start', ECOSYSTEM, '--only', 'leasehold-reaper'], { HEARTBEAT_SEC: 'often' })
    const ends = (): number =>
      [...readFileSync(join(env.PM2_HOME ?? '', 'pm2.log'), 'utf8').matchAll(/reaper:\d+\] exited with code \[2\]/g)]
        .length
    await eventually(() => ends() > 0)
    // Another start would follow after 200 ms; PM2 itself takes longer than that to answer three times.
    for (let asked = 0; asked < 3; asked += 1) await processNamed('leasehold-reaper')
    expect(ends()).toBe(1)
    expect(await processNamed('leasehold-reaper')).toMatchObject({ pid: 0, pm2_env: { restart_time: 0 } })
    expect(readFileSync(join(env.PM2_HOME ?? '', 'logs', 'leasehold-reaper-error.log'), 'utf8')).toContain(
      'HEARTBEAT_SEC',
    )
  })
})

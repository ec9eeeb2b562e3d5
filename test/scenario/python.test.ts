/** A worker in Python, through the SQL functions: it claims, beats and finishes; killed, it is recovered like any other. */
import { expect, test } from 'bun:test'
import { spawn } from 'node:child_process'
import { join } from 'node:path'

import { migrate } from '../../src/db/migrate.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { ROOT } from '../support/program.ts'
import { findPython } from '../support/python.ts'
import { eventTypes, insertJob, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const python = findPython()
if (!python) process.stdout.write('python3 with psycopg is not installed: its tests are skipped\n')

const stages = stagePolicy({ heartbeatSec: 0.3, factors: { asr: 5 }, defaultLeaseSec: 1.5, maxRuntimeSec: 0 })
const functions = { stages, backoffLadderMs: [100] }

function startPython(t: TestDatabase): { output: () => string; kill: () => void; ended: Promise<number | null> } {
  const child = spawn(python ?? 'python3', [join(ROOT, 'docs/examples/asr_worker.py'), '--once'], {
    env: { PATH: process.env.PATH ?? '', DATABASE_URL: t.url, HEARTBEAT_SEC: '0.3' },
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = new Promise<number | null>((done) => void child.once('close', (code) => done(code)))
  return { output: () => output, kill: () => child.kill('SIGKILL'), ended }
}

test('CI has a Python with psycopg', () => {
  if (process.env.CI === 'true') expect(python).not.toBeNull()
})

test.if(python !== null)('a Python worker outlives several leases by its heartbeats and finishes', async () => {
  await using t = await freshDatabase()
  await migrate(t.db, t.url, { tables: ['asr_jobs'], maxAttempts: 3, functions })
  const id = await insertJob(t.sql, 'asr_jobs', { stage: `'asr'`, payload: `'{"steps": 40}'` })
  const reaper = createReaper({ db: t.db, tables: ['asr_jobs'], stages, heartbeatSec: 0.3, intervalSec: 0.5 })
  reaper.start()
  const worker = startPython(t)
  expect(await worker.ended).toBe(0)
  await reaper.stop()
  expect(worker.output()).toContain(`transcribed ${id}`)
  expect(await readJob(t.sql, 'asr_jobs', id)).toMatchObject({ status: 'done', attempt_count: 1 })
  expect(await eventTypes(t.sql, id)).toEqual(['processing', 'done'])
  expect(await brokenInvariants(t.sql)).toEqual([])
})

test.if(python !== null)('killed in the middle, its job is requeued and done by the next one', async () => {
  await using t = await freshDatabase()
  await migrate(t.db, t.url, { tables: ['asr_jobs'], maxAttempts: 3, functions })
  const id = await insertJob(t.sql, 'asr_jobs', { stage: `'asr'`, payload: `'{"steps": 600}'` })
  const first = startPython(t)
  await eventually(async () => (await readJob(t.sql, 'asr_jobs', id)).status === 'processing', { what: 'a claim' })
  first.kill()
  await first.ended
  await t.sql`update asr_jobs set payload = '{"steps": 1}' where id = ${id}`
  const reaper = createReaper({
    db: t.db,
    tables: ['asr_jobs'],
    stages,
    heartbeatSec: 0.3,
    intervalSec: 0.5,
    backoffLadderMs: [100],
  })
  reaper.start()
  await eventually(async () => (await readJob(t.sql, 'asr_jobs', id)).status === 'queued', { what: 'the requeue' })
  await eventually(
    async () => {
      await startPython(t).ended
      return (await readJob(t.sql, 'asr_jobs', id)).status === 'done'
    },
    { what: 'the second run' },
  )
  await reaper.stop()
  expect(await eventTypes(t.sql, id)).toEqual(['processing', 'reaper:requeued', 'requeued:stale', 'processing', 'done'])
  expect(await brokenInvariants(t.sql)).toEqual([])
})

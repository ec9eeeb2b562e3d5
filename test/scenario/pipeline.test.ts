/** The example pipeline on real ffmpeg, with its worker killed in the middle of a clip. */
import { expect, test } from 'bun:test'
import { execFileSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { findFfmpeg } from '../../docs/examples/ffmpeg.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { ROOT } from '../support/program.ts'
import { eventTypes, insertJob, readEvents, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'
import { childPid, openPlace, startWorker } from '../support/worker.ts'

const ffmpeg = findFfmpeg()
if (!ffmpeg) console.warn('skipped: there is no ffmpeg on this machine')
const PIPELINE = { WORKER_HANDLERS: join(ROOT, 'docs', 'examples', 'clip-pipeline.ts'), WORKER_TABLES: 'jobs,asr_jobs' }
const put = (sql: Parameters<typeof insertJob>[0], table: string, stage: string, payload: object): Promise<string> =>
  insertJob(sql, table, { stage: `'${stage}'`, payload: `'${JSON.stringify(payload)}'` })
/** Running ffmpegs whose command line names this place. */
const encoders = (place: string): string[] => {
  try {
    return execFileSync('pgrep', ['-f', `ffmpeg.*${place}`], { encoding: 'utf8' })
      .trim()
      .split('\n')
  } catch {
    return []
  }
}

test.if(ffmpeg !== null || process.env.CI === 'true')(
  'a worker killed in the middle of a clip: ffmpeg is gone, the job is back at once, and is finished whole',
  async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const id = await put(t.sql, 'jobs', 'clip', { source: 'lavfi:testsrc2=size=640x360:rate=30', durationSec: 90 })
    const final = join(place.storage, 'results', id, 'clip.mp4')
    await using worker = startWorker(t.url, place, { ...PIPELINE, CLIP_SLA_FACTOR: '100' })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).progress > 5, { withinMs: 30_000 })
    const scratch = place.env.SCRATCH_DIR ?? ''
    expect(encoders(scratch).length).toBeGreaterThan(0)
    const victims = encoders(scratch)
    process.kill(await childPid(worker), 'SIGKILL')
    await eventually(
      async () => (await readEvents(t.sql, id)).find((event) => event.details.cause === 'killed by SIGKILL'),
      { withinMs: 5000 },
    )
    expect(existsSync(final)).toBe(false)
    await eventually(() => !victims.some((pid) => encoders(scratch).includes(pid)), {
      what: 'the first ffmpeg is gone',
    })
    await eventually(async () => (await readJob(t.sql, 'jobs', id)).status === 'done', { withinMs: 60_000 })
    expect(await readJob(t.sql, 'jobs', id)).toMatchObject({ attempt_count: 2, progress: 100 })
    const types = await eventTypes(t.sql, id)
    expect(types.filter((type) => type === 'done')).toHaveLength(1)
    const last = types.slice(types.lastIndexOf('processing')).filter((type) => type !== 'progress')
    expect(last).toEqual(['processing', 'source:ready', 'uploaded', 'done'])
    expect(() => execFileSync(ffmpeg ?? '', ['-v', 'error', '-i', final, '-f', 'null', '-'])).not.toThrow()
    expect(await brokenInvariants(t.sql)).toEqual([])
  },
  150_000,
)

test.if(ffmpeg !== null || process.env.CI === 'true')(
  'burn-in and transcript come out of the same worker, and a frozen source ends by its stall limit',
  async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    const burnin = await put(t.sql, 'jobs', 'burnin', {
      source: 'lavfi:testsrc2=size=320x180:rate=15',
      durationSec: 2,
      text: 'HELLO',
    })
    const asr = await put(t.sql, 'asr_jobs', 'asr', { source: 'lavfi:sine=frequency=440', durationSec: 3 })
    const bad = await put(t.sql, 'jobs', 'clip', { source: 'lavfi:testsrc2', durationSec: -1 })
    const fifo = join(place.storage, '..', 'frozen.mp4')
    execFileSync('mkfifo', [fifo])
    const frozen = await insertJob(t.sql, 'jobs', {
      stage: `'clip'`,
      payload: `'${JSON.stringify({ source: fifo, durationSec: 5 })}'`,
      max_attempts: '1',
    })
    await using worker = startWorker(t.url, place, {
      ...PIPELINE,
      MAX_CONCURRENCY: '4',
      CLIP_STALL_TIMEOUT_SEC: '2',
      CLIP_SLA_FACTOR: '100',
    })
    await eventually(
      async () =>
        (await readJob(t.sql, 'jobs', burnin)).status === 'done' &&
        (await readJob(t.sql, 'asr_jobs', asr)).status === 'done',
      { withinMs: 40_000 },
    )
    const transcript = JSON.parse(readFileSync(join(place.storage, 'results', asr, 'transcript.json'), 'utf8')) as {
      segments: unknown[]
    }
    expect(transcript.segments.length).toBeGreaterThan(0)
    expect(existsSync(join(place.storage, 'results', burnin, 'clip.mp4'))).toBe(true)
    await eventually(async () => (await readJob(t.sql, 'jobs', frozen)).status === 'failed', { withinMs: 30_000 })
    expect(await readJob(t.sql, 'jobs', frozen)).toMatchObject({
      fail_code: 'RETRIES_EXHAUSTED',
      fail_reason: 'STALLED',
    })
    expect(await readJob(t.sql, 'jobs', bad)).toMatchObject({
      status: 'failed',
      fail_code: 'VALIDATION',
      attempt_count: 1,
    })
    worker.process.kill('SIGTERM')
    expect((await worker.ended).code).toBe(0)
  },
  120_000,
)

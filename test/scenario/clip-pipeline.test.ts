/** The example of the README on a real ffmpeg: its progress, its death, and the files that the three handlers make. */
import { afterAll, describe, expect, test } from 'bun:test'
import { copyFile, mkdir, mkdtemp, readFile, rm, truncate } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import pipeline from '../../docs/examples/clip-pipeline.ts'
import { findFfmpeg } from '../../docs/examples/ffmpeg.ts'
import type { HandlerContext } from '../../src/index.ts'
import { createRunner } from '../../src/worker/child.ts'
import { eventually } from '../support/eventually.ts'
import { isAlive, recordingLog } from '../support/processes.ts'

const found = findFfmpeg()
if (!found) console.warn('skipped: there is no ffmpeg on this machine (Debian: apt-get install ffmpeg)')
const FFMPEG = found ?? 'ffmpeg'
const folder = await mkdtemp(join(tmpdir(), 'leasehold-clip-'))
afterAll(() => rm(folder, { recursive: true, force: true }))

/** As slow as real time, so that there is a middle to look at. */
const SLOW = [
  '-v',
  'error',
  '-progress',
  'pipe:1',
  '-stats_period',
  '0.1',
  '-re',
  '-f',
  'lavfi',
  '-i',
  'testsrc=size=160x120:rate=25',
]
const PICTURE = 'lavfi:testsrc=size=160x120:rate=25'
/** One second of tone, one of silence, and again. */
const BEEPS = 'lavfi:aevalsrc=0.3*sin(2765*t)*floor(1+0.999*sin(3.1416*t))'

function startRunner() {
  const abort = new AbortController()
  const { log, lines } = recordingLog()
  return { ...createRunner({ signal: abort.signal, log, graceMs: 1000 }), abort, log, lines }
}

let jobs = 0

/** What the runtime gives a handler, with a folder as the storage. */
async function job(payload: unknown, beforeValidation?: (file: string) => Promise<void>) {
  jobs += 1
  const scratchDir = join(folder, `scratch-${jobs}`)
  const results = join(folder, `results-${jobs}`)
  await Promise.all([scratchDir, results].map((path) => mkdir(path)))
  const { run, abort, log } = startRunner()
  const told = { progress: [] as number[], events: [] as string[] }
  const context: HandlerContext = {
    job: { id: String(jobs), payload },
    lease: {
      table: 'jobs',
      id: String(jobs),
      holder: 'test',
      attempt: 1,
      stage: 'clip',
      leaseSec: 30,
      until: new Date(),
    },
    signal: abort.signal,
    progress: async (pct) => void told.progress.push(pct),
    event: async (type) => void told.events.push(type),
    confirm: () => Promise.resolve(),
    scratchDir,
    async publish(file, { name = 'clip.mp4', validate } = {}) {
      await beforeValidation?.(file)
      await validate?.(file)
      await copyFile(file, join(results, name))
    },
    run,
    log,
  }
  return { context, results, told }
}

/** How many pictures a file has, counted by decoding it. */
async function countFrames(file: string): Promise<number> {
  const command = [FFMPEG, '-v', 'error', '-progress', 'pipe:1', '-i', file, '-f', 'null', '-']
  const { stdout } = await startRunner().run(command)
  return Number(/frame=(\d+)\D*$/.exec(stdout.slice(0, stdout.lastIndexOf('fps=')))?.[1])
}

/** The lower third of a file's first picture, as bytes of brightness. */
async function lowerThird(file: string): Promise<Buffer> {
  const raw = `${file}.raw`
  const look = ['-vf', 'crop=iw:ih/3:0:ih*2/3,format=gray', '-frames:v', '1', '-f', 'rawvideo', '-y', raw]
  await startRunner().run([FFMPEG, '-v', 'error', '-i', file, ...look])
  return readFile(raw)
}

// In CI a missing ffmpeg is a failure, not a skip.
describe.if(found !== null || process.env.CI === 'true')('with a real ffmpeg', () => {
  describe('a run', () => {
    test('tells its progress, rising to 100', async () => {
      const told: number[] = []
      await startRunner().run([FFMPEG, ...SLOW, '-t', '1.5', '-f', 'null', '-'], {
        durationMs: 1500,
        onProgress: (pct) => void told.push(pct),
      })
      expect(told).toEqual(told.toSorted((a, b) => a - b))
      expect(told.filter((pct) => pct > 0 && pct < 100).length).toBeGreaterThan(1)
      expect(told.filter((pct) => pct === 100)).toHaveLength(1)
    })

    test.each([
      [
        'SIGKILL',
        { code: 'CHILD_KILLED', signal: 'SIGKILL', permanent: false, message: 'ffmpeg was killed by SIGKILL' },
      ],
      // It ends well, says progress=end, and exits with 255.
      [
        'SIGTERM',
        { code: 'CHILD_FAILED', exitCode: 255, permanent: false, message: 'ffmpeg ended with exit code 255' },
      ],
    ] as const)('W6: that gets %s half-way is no success and never at 100', async (signal, expected) => {
      const { run, lines } = startRunner()
      const told: number[] = []
      const ended = run([FFMPEG, ...SLOW, '-t', '60', join(folder, `${signal}.mp4`)], {
        durationMs: 60_000,
        onProgress: (pct) => void told.push(pct),
      }).catch((error: unknown) => error)
      await eventually(() => told.some((pct) => pct > 0), { what: 'some progress' })
      process.kill(lines[0]?.pid ?? 0, signal)
      expect(await ended).toMatchObject(expected)
      expect(told).not.toContain(100)
    })

    test('X23: behind a shell is gone after an abort', async () => {
      const { run, abort } = startRunner()
      const pids: number[] = []
      const ended = run(['sh', '-c', '"$@" & echo $!', 'sh', FFMPEG, ...SLOW, '-f', 'null', '-'], {
        onLine: (line) => void (/^\d+$/.test(line) && pids.push(Number(line))),
      }).catch((error: unknown) => error)
      await eventually(() => pids.length === 1 && isAlive(pids[0] ?? 0))
      abort.abort(new Error('lease lost'))
      expect(await ended).toEqual(new Error('lease lost'))
      await eventually(() => !isAlive(pids[0] ?? 0))
    })
  })

  describe('clip', () => {
    test('cuts a clip out of a source that it makes up, and then one out of that file', async () => {
      const first = await job({ source: PICTURE, durationSec: 2 })
      await pipeline.clip(first.context)
      const file = join(first.results, 'clip.mp4')
      expect(await countFrames(file)).toBe(50)
      expect(first.told.events).toEqual(['source:ready'])
      expect(first.told.progress.at(-1)).toBe(100)

      const second = await job({ source: file, startSec: 0.5, durationSec: 1 })
      await pipeline.clip(second.context)
      expect(await countFrames(join(second.results, 'clip.mp4'))).toBe(25)
    })

    test('publishes nothing that does not play to its end', async () => {
      const damage = (file: string): Promise<void> => truncate(file, 4000)
      const { context, results } = await job({ source: PICTURE, durationSec: 2 }, damage)
      const error = await pipeline.clip(context).catch((error: unknown) => error)
      expect(error).toMatchObject({ code: 'CHILD_FAILED', permanent: false })
      expect(await readFile(join(results, 'clip.mp4')).catch(() => 'nothing')).toBe('nothing')
    })

    test('a source that is not there yet may be there later', async () => {
      const { context, told } = await job({ source: '/no/such/film.mp4', durationSec: 1 })
      const error = await pipeline.clip(context).catch((error: unknown) => error)
      expect(error).toMatchObject({ code: 'ENOENT' })
      expect(told.events).toEqual([])
    })
  })

  test('burnin draws the text into the picture, without a font', async () => {
    const source = 'lavfi:color=c=blue:size=160x120:rate=25'
    const [plain, burnt] = [await job({ source, durationSec: 1 }), await job({ source, durationSec: 1, text: 'Hello' })]
    await pipeline.clip(plain.context)
    await pipeline.burnin(burnt.context)
    const bright = async (results: string): Promise<number> =>
      (await lowerThird(join(results, 'clip.mp4'))).filter((dot) => dot > 180).length
    expect(await bright(plain.results)).toBe(0)
    expect(await bright(burnt.results)).toBeGreaterThan(100)
    expect(await countFrames(join(burnt.results, 'clip.mp4'))).toBe(25)
  })

  test('asr writes down what is heard when, and how loud', async () => {
    const { context, results, told } = await job({ source: BEEPS, durationSec: 5.5 })
    await pipeline.asr(context)
    const transcript = JSON.parse(await readFile(join(results, 'transcript.json'), 'utf8')) as {
      segments: { start: number; end: number; loudness: number }[]
    }
    expect(transcript.segments.map(({ start, end }) => [Math.round(start), Math.round(end)])).toEqual([
      [0, 1],
      [2, 3],
      [4, 5],
    ])
    for (const { loudness } of transcript.segments) expect(Math.round(loudness)).toBe(-13)
    expect(told.progress.at(-1)).toBe(100)
  })

  test.each([
    ['clip', null],
    ['clip', { source: PICTURE }],
    ['clip', { source: PICTURE, durationSec: -1 }],
    ['clip', { source: 'lavfi:movie=/etc/passwd', durationSec: 1 }],
    ['clip', { source: 'lavfi:testsrc,movie=/etc/passwd', durationSec: 1 }],
    ['burnin', { source: PICTURE, durationSec: 1 }],
    ['asr', { durationSec: 1 }],
  ] as const)('%s refuses %j for good', async (stage, payload) => {
    const { context, told } = await job(payload)
    const error = await pipeline[stage](context).catch((error: unknown) => error)
    expect(error).toMatchObject({ code: 'VALIDATION', permanent: true })
    expect(told.events).toEqual([])
  })
})

/** Artifacts under fire: publishers killed at any moment, other devices, full and read-only disks, the order of syncs. */
import { describe, expect, test } from 'bun:test'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { createLocalStorage } from '../../src/storage/local.ts'
import { artifactKey } from '../../src/storage/storage.ts'
import { publishArtifact, type Published } from '../../src/worker/artifact.ts'
import { startPublisher } from '../support/publisher.ts'
import { mountTmpfs, testFolder } from '../support/test-folder.ts'

const CLIP = randomBytes(6_000_000)
const KILLS = 50
const SOURCES = [
  ['X10: publishing from its own disk', '/tmp'],
  ['X12: publishing from another device', '/dev/shm'],
].filter(([, parent = '']) => existsSync(parent)) as [string, string][]
const STRACE = Bun.which('strace')
const MAY_MOUNT = mayMount()
if (SOURCES.length < 2) console.warn('skipped: no /dev/shm here, so no second device to publish from')
if (!MAY_MOUNT) console.warn('skipped: mounting a tmpfs is not allowed here, so no full disk')
if (!STRACE) console.warn('skipped: strace is not on this machine (Debian: apt-get install strace)')

function mayMount(): boolean {
  using folder = testFolder()
  using disk = mountTmpfs(folder.path, 'size=64k')
  return disk.isMounted
}

function publish(root: string, jobId: string, file: string): Promise<Published> {
  const key = artifactKey(jobId, 'clip.mp4')
  const storage = createLocalStorage({ root })
  return publishArtifact({ storage, key, file, table: 'jobs', jobId, attempt: 2, confirm: () => Promise.resolve() })
}

/** Every artifact that shows under its final name, as size and hash. */
function look(root: string): string[] {
  const results = join(root, 'results')
  const jobs = existsSync(results) ? readdirSync(results) : []
  return jobs
    .map((job) => join(results, job, 'clip.mp4'))
    .filter((path) => existsSync(path))
    .map((path) => describeBytes(readFileSync(path)))
}

function describeBytes(bytes: Buffer): string {
  return `${bytes.length} ${createHash('sha256').update(bytes).digest('hex').slice(0, 8)}`
}

describe('a publisher killed at any moment', () => {
  test.each(SOURCES)(
    '%s, shows a reader nothing or the whole file, and a retry heals',
    async (_title, parent) => {
      using source = testFolder(parent)
      using target = testFolder()
      if (parent === '/dev/shm') expect(statSync(source.path).dev).not.toBe(statSync(target.path).dev)
      const file = source.write('clip.mp4', CLIP)
      const seen = new Set<string>()
      let unfinished = 0

      for (let round = 0; round < KILLS; round += 1) {
        const root = join(target.path, String(round))
        mkdirSync(root)
        const publisher = await startPublisher({ root, file, name: 'job' })
        const ended = once(publisher, 'exit')
        const killer = sleep(Math.random() * 80).then(() => publisher.kill('SIGKILL'))
        while (publisher.exitCode === null && publisher.signalCode === null) {
          for (const sight of look(root)) seen.add(sight)
          await sleep(1)
        }
        await Promise.all([ended, killer])
        for (const sight of look(root)) seen.add(sight)

        const storage = createLocalStorage({ root })
        const jobs = existsSync(join(root, 'results')) ? readdirSync(join(root, 'results')) : []
        for (const job of jobs) {
          if ((await storage.verify(artifactKey(job, 'clip.mp4'))) !== null) continue
          unfinished += 1
          await publish(root, job, file)
          expect(readdirSync(join(root, 'results', job)).toSorted()).toEqual(['clip.mp4', 'clip.mp4.manifest.json'])
        }
        expect(look(root).length).toBe(jobs.length)
      }

      expect([...seen]).toEqual([describeBytes(CLIP)])
      // Otherwise no kill hit a publication, and nothing was shown.
      expect(unfinished).toBeGreaterThan(0)
    },
    120_000,
  )

  test.if(STRACE !== null || process.env.CI === 'true')(
    'W8: file and folder are synced in an order that a power cut cannot turn into a broken artifact',
    async () => {
      using folder = testFolder()
      const file = folder.write('clip.mp4', CLIP)
      const trace = join(folder.path, 'trace')
      const watched = 'trace=openat,fsync,link,linkat,rename,renameat,renameat2'
      mkdirSync(join(folder.path, 'root'))

      const publisher = await startPublisher({ root: join(folder.path, 'root'), file, name: 'job', count: 1 }, [
        STRACE ?? 'strace',
        '-f',
        '-y',
        '-qq',
        '-e',
        watched,
        '-o',
        trace,
      ])
      await once(publisher, 'exit')

      const steps = readFileSync(trace, 'utf8')
        .split('\n')
        .flatMap((line) => /\b(fsync|linkat|link)\((.*)\)\s+= 0/.exec(line)?.slice(1, 3).join(' ') ?? [])
        .filter((step) => step.includes('job-0'))
        .map((step) =>
          step
            .replaceAll(/\S*\/results\/job-0/g, 'JOB')
            .replaceAll(/\.\w{6}-\d+-\w{6}\.tmp/g, '.TMP')
            .replaceAll(/[<>",]|AT_FDCWD|\d+</g, '')
            .trim(),
        )
      expect(
        steps.map((step) =>
          step
            .replaceAll(/\s+/g, ' ')
            .replace(/^linkat/, 'link')
            .replace(/ 0$/, ''),
        ),
      ).toEqual([
        'fsync JOB/.clip.mp4.TMP',
        'fsync JOB/.clip.mp4.manifest.json.TMP',
        'link JOB/.clip.mp4.TMP JOB/clip.mp4',
        'fsync JOB',
        'link JOB/.clip.mp4.manifest.json.TMP JOB/clip.mp4.manifest.json',
        'fsync JOB',
      ])
    },
    60_000,
  )
})

test.if(MAY_MOUNT || process.env.CI === 'true')(
  'X11: a full disk is a transient failure that leaves its space free for the next job',
  async () => {
    using folder = testFolder()
    const root = join(folder.path, 'root')
    mkdirSync(root)
    using disk = mountTmpfs(root, 'size=1m')
    expect(disk.isMounted).toBe(true)
    const small = folder.write('small', CLIP.subarray(0, 700_000))

    await expect(publish(root, 'large', folder.write('large', CLIP))).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(/disk is full.*ENOSPC/),
    })
    expect(readdirSync(join(root, 'results/large'))).toEqual([])

    expect(await publish(root, 'small', small)).toMatchObject({ outcome: 'published' })
  },
)

test('X25: a read-only target is a transient failure, and passes when it is writable again', async () => {
  using folder = testFolder()
  const root = join(folder.path, 'root')
  const file = folder.write('clip.mp4', CLIP)
  mkdirSync(root)
  // To root, permissions are no obstacle; a read-only file system is.
  if (process.getuid?.() === 0 && !MAY_MOUNT)
    return console.warn('skipped: root without mount cannot make a read-only target')
  {
    using disk = mountTmpfs(root, 'ro')
    if (!disk.isMounted) chmodSync(root, 0o555)

    await expect(publish(root, 'job-1', file)).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(disk.isMounted ? /read-only.*EROFS/ : /permission denied.*EACCES/),
    })
  }
  chmodSync(root, 0o755)

  expect(await publish(root, 'job-1', file)).toMatchObject({ outcome: 'published' })
})

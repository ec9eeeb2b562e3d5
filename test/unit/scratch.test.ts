/** Scratch folders: one for each job and attempt, never through a link, and old ones swept away. */
import { describe, expect, test } from 'bun:test'
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { openScratch, removeScratch, sizeOf, sweepScratch } from '../../src/worker/scratch.ts'
import { runProgram } from '../support/program.ts'
import { testFolder } from '../support/test-folder.ts'

const HOUR_MS = 3_600_000

function age(hours: number, ...paths: string[]): void {
  const at = new Date(Date.now() - hours * HOUR_MS)
  for (const path of paths) utimesSync(path, at, at)
}

test('every attempt has its own folder, and the job’s goes with the last', async () => {
  using folder = testFolder()
  const root = join(folder.path, 'scratch')
  const first = { root, jobId: 'a/b', attempt: 1, holder: 'host-7-abc' }
  const second = { ...first, attempt: 2, holder: 'host-8-def' }

  expect(await openScratch(first)).toBe(join(root, 'a%2Fb', '1-host-7-abc'))
  const path = await openScratch(second)
  writeFileSync(join(path, 'half.mp4'), 'half')

  await removeScratch(first)
  expect(readFileSync(join(path, 'half.mp4'), 'utf8')).toBe('half')
  await removeScratch(second)
  expect(readdirSync(root)).toEqual([])
})

test('opening twice gives the same folder, and removing twice is nothing', async () => {
  using folder = testFolder()
  const place = { root: folder.path, jobId: 'job-1', attempt: 1, holder: 'w' }

  expect(await openScratch(place)).toBe(await openScratch(place))
  await removeScratch(place)
  await removeScratch(place)
})

test('one attempt may open while another of the same job closes', async () => {
  using folder = testFolder()
  const place = (attempt: number) => ({ root: folder.path, jobId: 'job-1', attempt, holder: 'w' })

  for (let n = 0; n < 200; n += 2) {
    await openScratch(place(n))
    const [, path] = await Promise.all([removeScratch(place(n)), openScratch(place(n + 1))])
    expect(existsSync(path)).toBe(true)
    await removeScratch(place(n + 1))
  }
})

test.each(['job-1', 'job-1/1-w'])('X24: a link planted at %s is not followed', async (planted) => {
  using folder = testFolder()
  const root = join(folder.path, 'scratch')
  const place = { root, jobId: 'job-1', attempt: 1, holder: 'w' }
  const precious = folder.write('elsewhere/1-w/precious', 'precious')
  mkdirSync(join(root, planted, '..'), { recursive: true })
  symlinkSync(join(folder.path, 'elsewhere'), join(root, planted))

  await expect(openScratch(place)).rejects.toMatchObject({ code: 'STORAGE' })
  await removeScratch(place)
  await sweepScratch({ root, olderThanHours: -1 })

  expect(readFileSync(precious, 'utf8')).toBe('precious')
})

test.each(['', '..', 'x'.repeat(300)])('X13: refuses the job id %p', async (jobId) => {
  using folder = testFolder()
  const place = { root: folder.path, jobId, attempt: 1, holder: 'w' }

  await expect(openScratch(place)).rejects.toMatchObject({ code: 'VALIDATION' })
  await expect(removeScratch(place)).rejects.toMatchObject({ code: 'VALIDATION' })
})

test('sizeOf counts files at any depth, and not what links point to', async () => {
  using folder = testFolder()
  folder.write('scratch/a', 'x'.repeat(1000))
  folder.write('scratch/deep/er/b', 'x'.repeat(500))
  folder.write('big', 'x'.repeat(1_000_000))
  symlinkSync(join(folder.path, 'big'), join(folder.path, 'scratch/link'))

  const bytes = await sizeOf(join(folder.path, 'scratch'))

  expect(bytes).toBeGreaterThanOrEqual(1500)
  expect(bytes).toBeLessThan(10_000)
  expect(await sizeOf(join(folder.path, 'missing'))).toBe(0)
})

describe('sweeping', () => {
  /** One job with an old attempt and one that is old but for a file still being written, and one with an old attempt only. */
  function arrange(root: string): { old: string[]; busy: string } {
    const old = [join(root, 'job-1/1-w'), join(root, 'job-2/1-w')]
    const busy = join(root, 'job-1/2-w')
    for (const path of [...old, busy]) {
      mkdirSync(join(path, 'frames'), { recursive: true })
      writeFileSync(join(path, 'frames/1.png'), 'x'.repeat(1000))
      age(100, join(path, 'frames/1.png'), join(path, 'frames'), path)
    }
    age(1, join(busy, 'frames/1.png'))
    return { old, busy }
  }

  test('removes what nobody has touched, and answers what and how much', async () => {
    using folder = testFolder()
    const { old, busy } = arrange(folder.path)

    const sweep = await sweepScratch({ root: folder.path, olderThanHours: 72 })

    expect(sweep.removed.map(({ path }) => path).toSorted()).toEqual(old)
    expect(sweep).toMatchObject({ bytes: 2000, failed: [] })
    expect(existsSync(busy)).toBe(true)
    expect(readdirSync(folder.path)).toEqual(['job-1'])
  })

  test('a dry run only tells', async () => {
    using folder = testFolder()
    const { old } = arrange(folder.path)

    const sweep = await sweepScratch({ root: folder.path, olderThanHours: 72, isDryRun: true })

    expect(sweep).toMatchObject({ bytes: 2000 })
    expect(old.every((path) => existsSync(path))).toBe(true)
  })

  test('a root that is not there has nothing to sweep', async () => {
    expect(await sweepScratch({ root: '/tmp/leasehold-no-such-folder', olderThanHours: 72 })).toMatchObject({
      removed: [],
    })
  })

  test('bun run clean:scratch tells what it would remove, then removes it', async () => {
    using folder = testFolder()
    const { old, busy } = arrange(folder.path)
    const env = { SCRATCH_DIR: folder.path, SCRATCH_RETENTION_HOURS: '72' }

    await using rehearsal = runProgram('clean-scratch.ts', env, ['--dry-run'])
    expect(await rehearsal.ended).toMatchObject({ code: 0 })
    expect(rehearsal.output()).toEndWith('would remove 2 scratch folders, 2.0 kB\n')
    expect(old.every((path) => existsSync(path))).toBe(true)

    await using sweep = runProgram('clean-scratch.ts', env)
    expect(await sweep.ended).toMatchObject({ code: 0 })
    expect(sweep.output()).toContain(`removed ${old[0]} (1.0 kB)\n`)
    expect(sweep.output()).toEndWith('removed 2 scratch folders, 2.0 kB\n')
    expect([...old, busy].map((path) => existsSync(path))).toEqual([false, false, true])

    await using mistyped = runProgram('clean-scratch.ts', env, ['--dryrun'])
    expect(await mistyped.ended).toMatchObject({ code: 2 })
  })
})

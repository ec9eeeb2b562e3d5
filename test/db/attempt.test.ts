/** What a holder writes while its attempt runs, and how jobs are given back, on tables of every shape: nothing without the fence. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import { countDue, releaseJob, tellEvent, writeProgress } from '../../src/db/attempt.ts'
import { insertJob as enqueue } from '../../src/db/enqueue.ts'
import type { Fence } from '../../src/db/heartbeat.ts'
import { giveBack } from '../../src/db/reap.ts'
import { type JobTable, openTable } from '../../src/db/table.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createLeases, type Leases } from '../../src/worker/lease.ts'
import { eventTypes, insertJob, readEvents, readJob } from '../support/rows.ts'
import { type ShapedDatabase, shapedDatabase, SHAPES } from '../support/shapes.ts'
import { brokenInvariants } from '../support/witness.ts'

const stages = stagePolicy({ heartbeatSec: 10, factors: { clip: 6 }, defaultLeaseSec: 300, maxRuntimeSec: 0 })
const settings = {
  rules: { stages, leaseTimeoutSec: 30, nullLeaseSec: 3600, outage: null },
  maxAttempts: 3,
  ladderMs: [1000],
}

describe.each(SHAPES)('attempts on $title', (shape) => {
  let t: ShapedDatabase
  let table: JobTable
  let leases: Leases
  const read = (id: string): ReturnType<typeof readJob> => readJob(t.sql, t.quoted, id)
  const claim = async (holder = 'worker-a', columns = {}): Promise<Fence> => {
    const claimed = await leases.claimJob(await insertJob(t.sql, t.quoted, columns), holder, 60)
    if (!claimed.ok) throw new Error(claimed.error)
    return claimed.value.lease
  }

  beforeAll(async () => {
    t = await shapedDatabase(shape)
    table = await openTable(t.db, t.profile)
    leases = createLeases({ db: t.db, table: t.profile })
  })
  afterAll(async () => {
    expect(await brokenInvariants(t.sql)).toEqual([])
    await t[Symbol.asyncDispose]()
  })

  test('progress and events are written behind the fence, and by nobody else', async () => {
    const fence = await claim()
    expect(await writeProgress(t.db, table, fence, { pct: 41.5 })).toBe(true)
    expect(await tellEvent(t.db, table, fence, { type: 'source:ready', details: { size: 7 } })).toBe(true)
    const zombies = [
      { ...fence, attempt: 2 },
      { ...fence, holder: 'worker-b' },
      { ...fence, attempt: 0 },
    ]
    for (const zombie of zombies) {
      expect(await writeProgress(t.db, table, zombie, { pct: 99 })).toBe(false)
      expect(await tellEvent(t.db, table, zombie, { type: 'note', details: {} })).toBe(false)
      expect(await releaseJob(t.db, table, zombie, { maxAttempts: 3 })).toBeNull()
    }
    expect((await read(fence.id)).progress).toBe(42)
    expect(await eventTypes(t.sql, fence.id)).toEqual(['processing', 'progress', 'source:ready'])
    expect((await readEvents(t.sql, fence.id))[2]?.details).toEqual({ attempt: 1, holder: 'worker-a', size: 7 })
    expect((await leases.finishJob({ ...fence, table: shape.table } as never, true)).ok).toBe(true)
    expect(await writeProgress(t.db, table, fence, { pct: 1 })).toBe(false)
  })

  test('a release costs no attempt, is due at once, and can be said once', async () => {
    const fence = await claim()
    expect(await releaseJob(t.db, table, fence, { maxAttempts: 3 })).toBe('queued')
    expect(await releaseJob(t.db, table, fence, { maxAttempts: 3 })).toBeNull()
    const row = await read(fence.id)
    expect(row).toMatchObject({
      status: 'queued',
      locked_by: null,
      lease_expires_at: null,
      attempt_count: 1,
      max_attempts: 4,
    })
    expect(row.next_earliest_run_at?.getTime()).toBeLessThanOrEqual(Date.now() + 1000)
    expect(await eventTypes(t.sql, fence.id)).toEqual(['processing', 'aborted:shutdown'])
  })

  test('what a dead holder held goes back at once with the cause; others keep theirs', async () => {
    const [left, last, other] = [await claim('dead'), await claim('dead', { max_attempts: '1' }), await claim('alive')]
    const given = await giveBack(t.db, table, settings, { holder: 'dead', cause: 'killed by SIGKILL' })
    const outcomes = Object.fromEntries(given.map((row) => [row.id, `${row.outcome} by ${row.rule}`]))
    expect(outcomes).toEqual({ [left.id]: 'requeued by worker_exit', [last.id]: 'failed by worker_exit' })
    expect(await read(left.id)).toMatchObject({ status: 'queued', attempt_count: 1, locked_by: null })
    expect(await read(last.id)).toMatchObject({
      status: 'failed',
      fail_code: 'worker_exit',
      fail_reason: 'killed by SIGKILL',
    })
    expect((await read(other.id)).status).toBe('processing')
    expect((await readEvents(t.sql, left.id))[1]?.details).toMatchObject({
      reason: 'worker_exit',
      cause: 'killed by SIGKILL',
    })
    expect(await giveBack(t.db, table, settings, { holder: 'dead', cause: 'again' })).toEqual([])
  })

  test('a new job is told as created, and counts as due', async () => {
    const before = await countDue(t.db, table, { upTo: 1000, maxAttempts: 3 })
    const given = shape.table === 'Clips.ClipJobs' ? { id: `it's "quoted" \\` } : {}
    const id = await enqueue(t.db, table, { stage: 'clip', fail_code: undefined, ...given })
    expect(await read(id)).toMatchObject({ status: 'queued', stage: 'clip', attempt_count: 0 })
    expect(await eventTypes(t.sql, id)).toEqual(['created'])
    expect(await countDue(t.db, table, { upTo: 1000, maxAttempts: 3 })).toBe(before + 1)
  })
})

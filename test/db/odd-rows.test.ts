/** A fixed table of odd rows. Each has a stated outcome, and none stays for ever. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import { createReaper, type Reaper } from '../../src/reaper/loop.ts'
import { type Columns, EXPIRED, insertJob, readJob } from '../support/rows.ts'
import { type ShapedDatabase, shapedDatabase, SHAPES } from '../support/shapes.ts'

const LONG_AGO = `now() - interval '2 hours'`
const NEITHER = { lease_expires_at: 'null', last_heartbeat_at: 'null', processing_started_at: 'null' }

/** [what is odd, its columns, outcome of a pass now, and once more after its granted lease is over] */
const ODD_ROWS: [string, Columns, 'queued' | 'failed' | 'processing', ('queued' | 'failed')?][] = [
  ['max_attempts 0', { max_attempts: '0' }, 'failed'],
  ['max_attempts negative', { max_attempts: '-1' }, 'failed'],
  ['attempt_count over max_attempts', { attempt_count: '7' }, 'failed'],
  ['attempt_count 2e9', { attempt_count: '2000000000' }, 'failed'],
  ['attempt_count and max_attempts huge', { attempt_count: '2000000000', max_attempts: '2147483647' }, 'queued'],
  ['attempt_count 0: its worker does not count', { attempt_count: '0' }, 'queued'],
  ['attempt_count 0 and one attempt allowed', { attempt_count: '0', max_attempts: '1' }, 'failed'],
  ['attempt_count negative', { attempt_count: '-5' }, 'queued'],
  ['lease -infinity', { lease_expires_at: `'-infinity'` }, 'queued'],
  ['lease infinity, heartbeat old', { lease_expires_at: `'infinity'`, last_heartbeat_at: LONG_AGO }, 'queued'],
  ['lease infinity, heartbeat fresh', { lease_expires_at: `'infinity'`, last_heartbeat_at: 'now()' }, 'processing'],
  [
    'lease a year ahead, heartbeat old',
    { lease_expires_at: `now() + interval '1 year'`, last_heartbeat_at: LONG_AGO },
    'queued',
  ],
  ['no lease, heartbeat -infinity', { lease_expires_at: 'null', last_heartbeat_at: `'-infinity'` }, 'queued'],
  [
    'no lease, heartbeat infinity, started long ago',
    { lease_expires_at: 'null', last_heartbeat_at: `'infinity'`, processing_started_at: LONG_AGO },
    'queued',
  ],
  ['no lease, no heartbeat, started long ago', { ...NEITHER, processing_started_at: LONG_AGO }, 'queued'],
  ['no lease, no heartbeat, started just now', { ...NEITHER, processing_started_at: 'now()' }, 'processing'],
  ['started at infinity, lease over', { processing_started_at: `'infinity'` }, 'queued'],
  [
    'started at -infinity, alive',
    {
      processing_started_at: `'-infinity'`,
      lease_expires_at: `now() + interval '1 minute'`,
      last_heartbeat_at: 'now()',
    },
    'processing',
  ],
  ['started at -infinity, lease over', { processing_started_at: `'-infinity'` }, 'queued'],
  ['future due time on a processing row', { next_earliest_run_at: `now() + interval '1 day'` }, 'queued'],
  ['due time infinity', { next_earliest_run_at: `'infinity'` }, 'queued'],
  ['due time -infinity', { next_earliest_run_at: `'-infinity'` }, 'queued'],
  ['unknown stage', { stage: `'Ünbekannt'` }, 'queued'],
  ['hostile stage', { stage: `E'\\';drop table jobs;--<script>\\n\\u0007'` }, 'queued'],
  ['stage of 100 kB', { stage: `repeat('x', 100000)` }, 'queued'],
  ['stage named like a property of every object', { stage: `'__proto__'` }, 'queued'],
  ['expected duration at its limit', { expected_duration_ms: '2147483647' }, 'queued'],
  ['expected duration negative', { expected_duration_ms: '-1' }, 'queued'],
  [
    'expected duration 0 with a live lease',
    { expected_duration_ms: '0', lease_expires_at: `now() + interval '1 minute'`, last_heartbeat_at: 'now()' },
    'processing',
  ],
  ['holder empty', { locked_by: `''` }, 'queued'],
  ['holder NULL', { locked_by: 'null' }, 'queued'],
]

describe.each(SHAPES)('odd rows on $title', (shape) => {
  let t: ShapedDatabase
  let reaper: Reaper
  beforeAll(async () => {
    t = await shapedDatabase(shape)
    reaper = createReaper({ db: t.db, tables: [t.profile] })
    await t.sql.unsafe(
      `alter table ${t.quoted} alter column max_attempts drop not null, alter column attempt_count drop not null`,
    )
  })
  afterAll(async () => {
    await t[Symbol.asyncDispose]()
  })

  const nulls: typeof ODD_ROWS = [
    ['max_attempts NULL', { max_attempts: 'null' }, 'queued'],
    ['max_attempts NULL and three attempts made', { max_attempts: 'null', attempt_count: '3' }, 'failed'],
    ['attempt_count NULL', { attempt_count: 'null' }, 'queued'],
    ['both NULL', { max_attempts: 'null', attempt_count: 'null' }, 'queued'],
  ]
  test.each([...ODD_ROWS, ...nulls])('%s', async (_, columns, outcome) => {
    const id = await insertJob(t.sql, t.quoted, { ...EXPIRED, ...columns })
    await reaper.reap(shape.table)
    const row = await readJob(t.sql, t.quoted, id)
    expect(row.status).toBe(outcome)
    if (outcome === 'processing') return
    expect(row).toMatchObject({ locked_by: null, lease_expires_at: null })
    if (outcome === 'queued') {
      const sec = ((row.next_earliest_run_at?.getTime() ?? 0) - Date.now()) / 1000
      expect(sec).toBeGreaterThan(25)
      expect(sec).toBeLessThan(662)
    }
  })

  test('a row in which nothing tells its age is granted a lease once, and runs out then', async () => {
    const hasCreatedAt = shape.table !== 'Clips.ClipJobs'
    if (hasCreatedAt) await t.sql.unsafe(`alter table ${t.quoted} alter column created_at drop not null`)
    if (shape.table === 'jobs') await t.sql.unsafe(`alter table jobs alter column updated_at drop not null`)
    const ageless = {
      ...EXPIRED,
      ...NEITHER,
      ...(hasCreatedAt ? { created_at: 'null' } : {}),
      ...(shape.table === 'jobs' ? { updated_at: 'null' } : {}),
    }
    const id = await insertJob(t.sql, t.quoted, ageless)
    await reaper.reap(shape.table)
    const granted = await readJob(t.sql, t.quoted, id)
    expect(granted.status).toBe('processing')
    expect((granted.lease_expires_at?.getTime() ?? 0) - Date.now()).toBeGreaterThan(290_000)
    await t.sql.unsafe(`update ${t.quoted} set lease_expires_at = now() - interval '1 second' where id::text = $1`, [
      id,
    ])
    await reaper.reap(shape.table)
    expect((await readJob(t.sql, t.quoted, id)).status).toBe('queued')
  })

  test('S13: a status that is not ours is left alone', async () => {
    if (shape.table === 'media.jobs') await t.sql.unsafe(`alter type media.job_status add value 'paused'`)
    const id = await insertJob(t.sql, t.quoted, { ...EXPIRED, status: `'paused'` })
    await reaper.reap(shape.table)
    expect((await readJob(t.sql, t.quoted, id)).status).toBe('paused')
  })
})

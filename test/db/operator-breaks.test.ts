/** What an operator must be able to rely on when something breaks on the way, and plots that nothing can hold up. */
import { expect, test } from 'bun:test'

import type { Database } from '../../src/db/client.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import type { Dispatcher, Offer } from '../../src/dispatch/dispatcher.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { operatorOn } from '../support/operator.ts'
import { insertJob, readJob } from '../support/rows.ts'

const DEED = { actor: 'ada', reason: 'again' }
const FAILED = { status: `'failed'`, stage: `'clip'`, attempt_count: '3', fail_code: `'TIMEOUT'` }

test('what was done is told and published, also when the database does not answer once more', async () => {
  await using t = await freshDatabase()
  const id = await insertJob(t.sql, 'jobs', FAILED)
  const published: Offer[] = []
  const dispatch: Dispatcher = {
    publish: (_, jobs) => Promise.resolve(void published.push(...jobs)),
    fetch: () => Promise.resolve([]),
    close: () => Promise.resolve(),
  }
  const operator = operatorOn(deafAfterTheMove(t.db), [snakeCaseProfile('jobs')], { dispatch })
  const done = await operator.act('retry', { table: 'jobs', id }, DEED)
  expect(done).toMatchObject({ ok: true, value: { id, job: null } })
  expect(published.map((offer) => offer.id)).toEqual([id])
  expect((await readJob(t.sql, 'jobs', id)).status).toBe('queued')
})

/** The real database, until an event was written: then it answers nothing any more. */
function deafAfterTheMove(db: Database): Database {
  let isDeaf = false
  return {
    ...db,
    async query(build, options) {
      if (isDeaf) throw Object.assign(new Error('gone'), { code: 'CONNECTION_CLOSED' })
      const rows = await db.query(build, options)
      const [told] = await db.query((sql) => sql<{ told: number }[]>`select count(*)::int as told from job_events`)
      isDeaf = (told?.told ?? 0) > 0
      return rows
    },
  }
}

test('events of others, whatever time they speak of, do not hold the plots up; our own of this moment are not lost', async () => {
  await using t = await freshDatabase()
  const { sql } = t
  const operator = operatorOn(t.db, [snakeCaseProfile('jobs')])
  const id = await insertJob(sql, 'jobs')
  const tell = (type: string, at: string, table = 'jobs'): Promise<unknown> =>
    sql.unsafe(
      `insert into job_events (job_id, data) values ('${id}', jsonb_build_object('type', '${type}', 'table', '${table}', 'at', ${at}))`,
    )
  const ago = (sec: number): string =>
    `to_char(clock_timestamp() at time zone 'utc' - interval '${sec} seconds', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`
  const done = (): number => (operator.history()[0]?.minutes ?? []).reduce((sum, minute) => sum + minute.done, 0)

  await tell('done', ago(90))
  await operator.sampleHistory()
  expect(done()).toBe(1)
  await sql`
    insert into job_events (job_id, data)
    select ${id}, jsonb_build_object('type', 'theirs', 'at', 'Tue, 18 Nov 2036 08:00:00') from generate_series(1, 25000)`
  await operator.sampleHistory()
  for (let event = 0; event < 3; event += 1) await tell('done', ago(60))
  await tell('done', `'9999-12-31T00:00:00Z'`)
  await operator.sampleHistory()
  expect(done()).toBe(4)

  // One of this very moment waits for the next reading, and nothing behind it is counted before it.
  await tell('done', ago(0))
  await tell('theirs', `'Tue, 18 Nov'`, 'other')
  await operator.sampleHistory()
  expect(done()).toBe(4)
  await eventually(
    async () => {
      await operator.sampleHistory()
      return done() === 5
    },
    { withinMs: 30_000, everyMs: 500 },
  )
}, 60_000)

/** Claims, heartbeats, finishes and reaps all at once, first in peace and then while backends are killed in a loop. */
import { expect, test } from 'bun:test'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../../src/db/client.ts'
import { surviveLostSocketWrites } from '../../src/db/crash-filter.ts'
import { stagePolicy } from '../../src/job/stage.ts'
import { createReaper } from '../../src/reaper/loop.ts'
import { createLeases, type Lease } from '../../src/worker/lease.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { countByStatus, insertMany } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const stages = stagePolicy({ heartbeatSec: 0.2, factors: {}, defaultLeaseSec: 0.6, maxRuntimeSec: 0 })
const QUICK = { stages, maxAttempts: 1000, backoffLadderMs: [20] }

surviveLostSocketWrites(() => undefined)

/** A worker that is now and then a zombie: it lets its lease run out and then tries everything with the old one. */
async function work(db: Database, name: string, until: AbortSignal): Promise<string[]> {
  const leases = createLeases({ db, table: 'jobs', ...QUICK })
  const acked: string[] = []
  const zombies: Lease[] = []
  while (!until.aborted) {
    const claimed = await leases.claimNext({ workerId: name, limit: 3 })
    if (!claimed.ok || claimed.value.length === 0) {
      await sleep(10)
      continue
    }
    const held = claimed.value.map(({ lease }) => lease)
    await leases.heartbeatJobs(held)
    for (const lease of held) {
      const dice = Math.random()
      if (dice < 0.15) zombies.push({ ...lease })
      else {
        const done = await leases.finishJob(lease, dice < 0.85, { code: 'NETWORK' })
        if (done.ok && done.value.status === 'done') acked.push(lease.id)
      }
    }
    for (const zombie of zombies.splice(0, zombies.length)) {
      // Mostly reaped by now; where not, the finish is still within its rights.
      if (zombie.until.getTime() > Date.now() - 1000) zombies.push(zombie)
      else if ((await leases.finishJob(zombie, true)).ok) acked.push(zombie.id)
    }
  }
  return acked
}

async function storm({ killBackends }: { killBackends: boolean }): Promise<void> {
  await using t = await freshDatabase()
  await insertMany(t.sql, 'jobs', 400, { max_attempts: '1000' })
  const stop = new AbortController()
  const open = (): Database => t.open({ queryTimeoutSec: 1, poolMax: 2, applicationName: 'storm' })
  const reapers = [1, 2].map(() =>
    createReaper({
      db: open(),
      tables: ['jobs'],
      heartbeatSec: 0.2,
      leaseTimeoutSec: 0.6,
      intervalSec: 0.2,
      batchSize: 7,
      ...QUICK,
    }),
  )
  for (const reaper of reapers) reaper.start()
  const workers = ['a', 'b', 'c', 'd'].map((name) => work(open(), name, stop.signal))
  let kills = 0
  const killing = (async () => {
    if (!killBackends) return
    while (!stop.signal.aborted) {
      await sleep(60)
      const killed =
        await t.sql`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'storm' and random() < 0.4 and datname = current_database()`
      kills += killed.length
    }
  })()
  await eventually(async () => (await countByStatus(t.sql, 'jobs')).done === 400, {
    withinMs: 50_000,
    everyMs: 200,
    what: 'all 400 jobs done',
  })
  stop.abort()
  const results = await Promise.all(workers)
  await killing
  await Promise.all(reapers.map((reaper) => reaper.stop()))

  expect(await brokenInvariants(t.sql)).toEqual([])
  const acked = results.flat()
  // What a worker was told is done is done once: nobody else was told the same.
  expect(new Set(acked).size).toBe(acked.length)
  const [done] =
    await t.sql`select count(*)::int as events, count(distinct job_id)::int as jobs from job_events where data ->> 'type' = 'done'`
  expect(done).toEqual({ events: 400, jobs: 400 })
  if (killBackends) expect(kills).toBeGreaterThan(20)
}

test(
  'R10: workers, zombies and two reapers on the same rows: only legal moves, each with its event',
  () => storm({ killBackends: false }),
  90_000,
)

test(
  'the same while backends are killed all the time: nothing hangs, nothing is lost, nothing is told twice',
  () => storm({ killBackends: true }),
  90_000,
)

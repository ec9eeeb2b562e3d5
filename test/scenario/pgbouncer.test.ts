/** N4: everything works through PgBouncer in transaction mode, because nothing depends on a session. */
import { expect, test } from 'bun:test'

import { stagePolicy } from '../../src/job/stage.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { PGBOUNCER, startPgBouncer } from '../support/pgbouncer.ts'
import { runProgram } from '../support/program.ts'
import { countByStatus, EXPIRED, insertMany } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

if (!PGBOUNCER) console.warn('skipped: pgbouncer is not on this machine (Debian: apt-get install pgbouncer)')
const stages = stagePolicy({ heartbeatSec: 5, factors: {}, defaultLeaseSec: 30, maxRuntimeSec: 0 })

// CI has one; there a missing PgBouncer is a failure, not a skip.
test.if(PGBOUNCER !== null || process.env.CI === 'true')(
  'claims, heartbeats, finishes, migrations and two reapers share two server connections',
  async () => {
    await using t = await freshDatabase()
    await using bouncer = await startPgBouncer(t.url)
    await insertMany(t.sql, 'jobs', 3000, EXPIRED)
    const env = {
      DATABASE_URL: bouncer.url,
      HEARTBEAT_SEC: '0.2',
      REAPER_BATCH_SIZE: '100',
      REAPER_INTERVAL_SEC: '0.5',
      LOG_LEVEL: 'warn',
    }
    await using first = runProgram('reaper.ts', env)
    await using second = runProgram('reaper.ts', env)
    await eventually(async () => (await countByStatus(t.sql, 'jobs')).queued === 3000)

    await insertMany(t.sql, 'asr_jobs', 200, { stage: `'asr'` })
    const workers = Array.from({ length: 10 }, (_, n) => ({
      name: `w-${n}`,
      leases: createLeases({ db: t.open({ url: bouncer.url, poolMax: 2 }), table: 'asr_jobs', stages }),
    }))
    await Promise.all(
      workers.map(async ({ name, leases }) => {
        for (;;) {
          const claimed = await leases.claimNext({ workerId: name, limit: 5 })
          if (!claimed.ok) throw new Error(claimed.error)
          if (claimed.value.length === 0) return
          const held = claimed.value.map(({ lease }) => lease)
          expect(await leases.heartbeatJobs(held)).toMatchObject({ ok: true, value: { lost: [] } })
          for (const lease of held) expect(await leases.finishJob(lease, true)).toMatchObject({ ok: true })
        }
      }),
    )
    expect(await countByStatus(t.sql, 'asr_jobs')).toEqual({ done: 200 })

    await using migration = runProgram('cli.ts', { DATABASE_URL: bouncer.url, JOB_MAX_ATTEMPTS: '4' }, ['migrate'])
    expect((await migration.ended).code).toBe(0)
    for (const reaper of [first, second]) {
      reaper.process.kill('SIGTERM')
      expect((await reaper.ended).code).toBe(0)
      expect(
        reaper
          .lines()
          .filter(
            (line) =>
              line.level === 'error' &&
              line.msg !== 'most leases ran out at once: look at the database and the network before the workers',
          ),
      ).toEqual([])
    }
    expect(await brokenInvariants(t.sql)).toEqual([])
  },
  60_000,
)

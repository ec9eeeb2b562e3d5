/** bun run bench: what the main statements cost on this machine, side by side, as ratios. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import postgres from 'postgres'

import { openDatabase } from '../src/db/client.ts'
import { startEmbedded } from '../src/db/embedded.ts'
import { migrate } from '../src/db/migrate.ts'
import { createReaper } from '../src/reaper/loop.ts'
import { createLeases } from '../src/worker/lease.ts'

const JOBS = 1000
const folder = mkdtempSync(join(tmpdir(), 'leasehold-bench-'))
const server = await startEmbedded({ dataDir: folder })
const db = openDatabase({ url: server.url, prepare: true, poolMax: 10, queryTimeoutSec: 120 })
await migrate(db, server.url, { tables: ['jobs'], maxAttempts: 1_000_000 })
const sql = postgres(server.url, { max: 1, onnotice: () => undefined })
const leases = createLeases({ db, table: 'jobs', backoffLadderMs: [1] })

await sql`insert into jobs (stage) select 'clip' from generate_series(1, ${JOBS})`
await sql`insert into jobs (status) select 'done' from generate_series(1, 100000)`
await sql`analyze jobs`

const claimed = await leases.claimNext({ workerId: 'bench', limit: JOBS })
if (!claimed.ok) throw new Error(claimed.error)
const held = claimed.value.map(({ lease }) => lease)
await leases.heartbeatJobs(held)
await leases.heartbeatJobs(held.slice(0, 1))

const together = await time(10, () => leases.heartbeatJobs(held))
const oneByOne = await time(1, async () => {
  for (const lease of held) await leases.heartbeatJobs([lease])
})
const finishing = await time(1, () => Promise.all(held.map((lease) => leases.finishJob(lease, true))))
await sql`insert into jobs (status, stage, locked_by, attempt_count, lease_expires_at)
  select 'processing', 'clip', 'dead', 1, now() - interval '1 minute' from generate_series(1, 20000)`
const reaper = createReaper({ db, tables: ['jobs'] })
const reaping = await time(1, () => reaper.reap('jobs'))
const idle = await time(20, () => reaper.preview('jobs'))

print('heartbeat, 1000 jobs in one statement', together / JOBS, 'per job')
print('heartbeat, one statement per job', oneByOne / JOBS, `per job, ${(oneByOne / together).toFixed(1)} times as much`)
print('finish with its event, 10 at a time', finishing / JOBS, 'per job')
print('reap with both events, 20000 rows', reaping / 20_000, 'per job')
print('scan with nothing to do, 120000 other rows', idle, 'per scan')

await sql.end()
await db.close()
await server.stop()
rmSync(folder, { recursive: true, force: true })
process.exit(0)

async function time(rounds: number, act: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now()
  for (let round = 0; round < rounds; round += 1) await act()
  return (performance.now() - startedAt) / rounds
}

function print(what: string, ms: number, unit: string): void {
  process.stdout.write(`${what.padEnd(45)} ${ms.toFixed(4).padStart(9)} ms ${unit}\n`)
}

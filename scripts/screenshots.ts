/** bun run screenshots: the pictures in docs/screens, taken of a real dashboard on a database made for the purpose. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import postgres, { type Sql } from 'postgres'

import { createPassLog } from '../src/dashboard/passes.ts'
import { loadConfig } from '../src/config/config.ts'
import { openDatabase } from '../src/db/client.ts'
import { startEmbedded } from '../src/db/embedded.ts'
import { migrate } from '../src/db/migrate.ts'
import { snakeCaseProfile } from '../src/db/profiles.ts'
import { createReaper } from '../src/reaper/loop.ts'
import { createLog } from '../src/telemetry/log.ts'
import { createMetrics } from '../src/telemetry/metrics.ts'
import { openBrowser } from './support/browser.ts'
import { openDashboard } from './support/dashboard.ts'

const OUT = join(import.meta.dirname, '..', 'docs', 'screens')
const TOKEN = 'only-for-the-pictures'
/** What a person would look at first, and how wide their screen is. */
const PICTURES = [
  { name: 'overview', path: '/', colorScheme: 'light', width: 1200, height: 640 },
  { name: 'leases', path: '/leases', colorScheme: 'light', width: 1200, height: 560 },
  { name: 'job', path: '/job', colorScheme: 'light', width: 1200, height: 900 },
  { name: 'failures', path: '/failures', colorScheme: 'dark', width: 1200, height: 420 },
  { name: 'phone', path: '/leases', colorScheme: 'dark', width: 390, height: 780 },
] as const

const folder = mkdtempSync(join(tmpdir(), 'leasehold-screens-'))
const server = await startEmbedded({ dataDir: folder, settings: { fsync: 'off' } })
const config = loadConfig({ OPERATOR_TOKEN: TOKEN })
const tables = ['jobs', 'asr_jobs']
const db = openDatabase({ url: server.url })
await migrate(db, server.url, { tables, maxAttempts: 3 })
const sql = postgres(server.url, { max: 2, onnotice: () => undefined })
const jobId = await arrange(sql)

const passes = createPassLog()
const reaper = createReaper({ db, tables, onPass: (pass) => passes.add(pass) })
const dashboard = openDashboard({
  config,
  tables: tables.map(snakeCaseProfile),
  url: server.url,
  port: 0,
  log: createLog({ level: 'silent' }),
  metrics: createMetrics({ stages: ['clip', 'asr', 'burnin'], tables }),
  health: reaper.health,
  passes,
  dispatch: undefined,
})
if (!dashboard.ok) throw new Error(dashboard.error)

mkdirSync(OUT, { recursive: true })
const browser = await openBrowser()
for (const { name, path, colorScheme, width, height } of PICTURES) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme })
  await page.request.post(`${dashboard.value.url}/api/session`, {
    data: { token: TOKEN, name: 'Ada' },
    headers: { origin: dashboard.value.url },
  })
  await page.goto(dashboard.value.url + (path === '/job' ? `/job?table=jobs&id=${jobId}` : path))
  await page.locator('.plots rect, main table, .explanation').first().waitFor()
  await page.screenshot({ path: join(OUT, `${name}.png`) })
  process.stdout.write(`docs/screens/${name}.png\n`)
  await page.close()
}

await browser.close()
await dashboard.value.stop()
await sql.end()
await db.close()
await server.stop()
rmSync(folder, { recursive: true, force: true })
process.exit(0)

/** An evening in the life of a clip pipeline. Answers the job whose story is told. */
async function arrange(sql: Sql): Promise<string> {
  await sql`
    insert into jobs (stage, status, locked_by, attempt_count, max_attempts, lease_expires_at, last_heartbeat_at, processing_started_at, progress)
    select (array['clip', 'clip', 'burnin'])[1 + g % 3], 'processing', 'render-' || (1 + g % 3) || '-4711-k3f9', 1, 3,
      now() + make_interval(secs => 600 - g * 70), now() - make_interval(secs => g), now() - make_interval(secs => 60 + g * 30), 8 + g * 11
    from generate_series(1, 7) g`
  await sql`
    insert into asr_jobs (stage, status, last_heartbeat_at, processing_started_at)
    values ('asr', 'processing', now() - interval '12 seconds', now() - interval '4 minutes')`
  await sql`
    insert into jobs (stage, status, attempt_count, fail_code, fail_reason)
    select (array['clip', 'burnin'])[1 + g % 2], 'failed', 3, (array['RETRIES_EXHAUSTED', 'VALIDATION', 'timeout'])[1 + g % 3],
      (array['CHILD_KILLED', 'the source has no audio', 'lease_expired'])[1 + g % 3]
    from generate_series(1, 14) g`
  await sql`insert into jobs (stage) select 'clip' from generate_series(1, 9)`
  await sql`insert into jobs (stage, status, attempt_count) select 'clip', 'done', 1 from generate_series(1, 420)`
  await sql`analyze jobs`
  await tellOfTheLastHour(sql)
  return tellOneStory(sql)
}

async function tellOfTheLastHour(sql: Sql): Promise<void> {
  await sql`
    insert into job_events (job_id, data)
    select (select id from jobs where status = 'done' limit 1), jsonb_build_object('type', told.type, 'table', 'jobs', 'details', '{}'::jsonb,
      'at', to_char((now() - make_interval(mins => m)) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
    from generate_series(59, 1, -1) m
    cross join lateral (
      select 'done' as type from generate_series(1, 5 + (m * 7) % 6)
      union all select 'reaper:requeued' from generate_series(1, case when m between 20 and 26 then m - 18 when m % 13 = 0 then 1 else 0 end)
      union all select 'failed' from generate_series(1, case when m between 18 and 23 then 2 when m % 17 = 0 then 1 else 0 end)) as told`
}

/** A job whose worker died twice and that runs again. */
async function tellOneStory(sql: Sql): Promise<string> {
  const [row] = await sql<{ id: string }[]>`
    insert into jobs (stage, status, locked_by, attempt_count, max_attempts, lease_expires_at, last_heartbeat_at, processing_started_at, progress)
    values ('clip', 'processing', 'render-2-5180-w7mq', 3, 3, now() + interval '52 seconds', now() - interval '8 seconds', now() - interval '95 seconds', 41)
    returning id`
  const id = row?.id ?? ''
  const story: [number, string, Record<string, unknown>][] = [
    [610, 'created', {}],
    [600, 'processing', { attempt: 1, holder: 'render-1-4711-k3f9' }],
    [420, 'reaper:requeued', { attempt: 1, holder: 'render-1-4711-k3f9', reason: 'lease_expired' }],
    [380, 'processing', { attempt: 2, holder: 'render-3-4702-b2xd' }],
    [
      240,
      'reaper:requeued',
      { attempt: 2, holder: 'render-3-4702-b2xd', reason: 'worker_exit', cause: 'killed by SIGKILL' },
    ],
    [95, 'processing', { attempt: 3, holder: 'render-2-5180-w7mq' }],
  ]
  for (const [ago, type, details] of story) {
    const at = new Date(Date.now() - ago * 1000).toISOString()
    await sql`insert into job_events (job_id, data) values (${id}, ${sql.json({ type, table: 'jobs', details, at } as never)})`
  }
  return id
}

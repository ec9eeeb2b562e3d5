/** What the doctor asks the server and the way to it. */
import postgres from 'postgres'

import type { Database } from './client.ts'
import type { Finding } from './finding.ts'

/** A clock this far off makes log lines and rows hard to compare; leases do not mind. */
const NOTABLE_SKEW_SEC = 2
/** The oldest server the tests run on. */
const OLDEST_TRIED = 140_000

export async function examineServer(
  db: Database,
  { url, prepare }: { url: string; prepare: boolean },
): Promise<Finding[]> {
  const findings: Finding[] = []
  const say = (level: Finding['level'], place: string, what: string, follows: string, mend: string | null): number =>
    findings.push({ level, table: null, place, what, follows, mend })
  const sentAt = Date.now()
  const [server] = await db.query(
    (sql) => sql<{ now: number; isReadOnly: boolean; commit: string; version: number; versionText: string }[]>`
      select extract(epoch from clock_timestamp())::float8 as now,
        current_setting('transaction_read_only') = 'on' as "isReadOnly",
        current_setting('synchronous_commit') as commit,
        current_setting('server_version_num')::int as version,
        current_setting('server_version') as "versionText"`,
  )
  if (!server) return findings
  // Half of the round trip is nobody's fault.
  const skewSec = server.now - (sentAt + Date.now()) / 2000
  if (server.isReadOnly) {
    const mend = 'point DATABASE_URL at the primary, or take default_transaction_read_only off'
    say('error', 'server', 'the server is read-only', 'nothing can be claimed, finished or reaped', mend)
  }
  if (server.commit === 'off') {
    say(
      'warning',
      'synchronous_commit',
      'synchronous_commit is off',
      'after a crash of the server the last finishes may be missing: those jobs run twice',
      'alter role current_user set synchronous_commit = on',
    )
  }
  if (server.version < OLDEST_TRIED) {
    say(
      'warning',
      'server',
      `PostgreSQL ${server.versionText} was never tried`,
      'something may not work',
      'use 14 or later',
    )
  }
  if (Math.abs(skewSec) > NOTABLE_SKEW_SEC) {
    say(
      'warning',
      'clock',
      `this machine's clock is ${Math.abs(skewSec).toFixed(1)} s ${skewSec > 0 ? 'behind' : 'ahead of'} the database's`,
      "leases are counted by the database's clock and do not mind; log lines and rows disagree",
      'let NTP set the clocks',
    )
  }
  if (await isPooled(url)) {
    const follows = 'claims, heartbeats, finishes and reaps do not mind; migrate needs a direct connection'
    say('note', 'pooler', 'a pooler such as PgBouncer stands between us and the server', follows, null)
    if (prepare) {
      say(
        'error',
        'DATABASE_PREPARE',
        'prepared statements are on behind a pooler',
        'in transaction mode a statement is prepared on one connection and looked for on another',
        'DATABASE_PREPARE=off',
      )
    }
  }
  return findings
}

/** A pooler hands out process numbers of its own, so that it can cancel; the server knows the real one. */
async function isPooled(url: string): Promise<boolean> {
  const client = postgres(url, {
    max: 1,
    prepare: false,
    fetch_types: false,
    connect_timeout: 5,
    onnotice: () => undefined,
  })
  try {
    const asked = client<{ pid: number }[]>`select pg_backend_pid() as pid`
    const [row] = await asked
    const told = (asked as unknown as { state?: { pid?: number } | null }).state?.pid
    return told !== undefined && row !== undefined && told !== row.pid
  } finally {
    await client.end({ timeout: 1 })
  }
}

/** Holds profiles against their tables, the server and each other, and says what is wrong, what follows and what mends it. */
import type { CatalogTable } from './catalog.ts'
import type { Database } from './client.ts'
import { examineServer } from './doctor-server.ts'
import { examineRows } from './doctor-rows.ts'
import type { Finding } from './finding.ts'
import { planFunctions } from './functions.ts'
import { planMigration } from './migrate.ts'
import type { ColumnKey, Profile } from './profile.ts'
import type { GeneralRules } from './rules.ts'
import { quoteName } from './sql.ts'
import { inspectTable, type JobTable, openTable } from './table.ts'

export interface DoctorSettings extends GeneralRules {
  url: string
  maxAttempts: number
  backoffLadderMs: readonly number[]
  queuedOrphanSec: number
  /** Prepared statements are on. */
  prepare: boolean
  hasDispatcher: boolean
  /** What the settings say against each other. */
  warnings: readonly string[]
}

/** Reads only. Errors come first; what cannot be looked at because of one is left out. */
export async function examine(
  db: Database,
  profiles: readonly Profile[],
  settings: DoctorSettings,
): Promise<Finding[]> {
  const findings = [...settings.warnings.map(fromSettings), ...(await examineServer(db, settings))]
  for (const profile of profiles) findings.push(...(await examineTable(db, profile, settings)))
  const order: Finding['level'][] = ['error', 'warning', 'note']
  return findings.toSorted((a, b) => order.indexOf(a.level) - order.indexOf(b.level))
}

async function examineTable(db: Database, profile: Profile, settings: DoctorSettings): Promise<Finding[]> {
  const { jobs, findings } = await inspectTable(db, profile)
  if (!jobs) return findings
  const mended = await withExactSql(db, profile, findings, settings)
  const all = [...mended, ...policyFindings(profile, settings), ...finishBreakers(profile, jobs)]
  if (findings.some(({ level }) => level === 'error')) return all
  const table = await openTable(db, profile)
  return [
    ...all,
    ...(await missingIndexes(db, profile, settings)),
    ...(await staleFunctions(db, table, settings)),
    ...(await examineRows(db, table, settings)),
  ]
}

/** "Run migrate" is an answer; the statement itself is a better one. */
async function withExactSql(
  db: Database,
  profile: Profile,
  findings: Finding[],
  { maxAttempts }: DoctorSettings,
): Promise<Finding[]> {
  const steps = await planMigration(db, { tables: [profile], maxAttempts, isAttached: true })
  return findings.map((finding) => {
    if (finding.level !== 'error' || !finding.mend?.includes('bun run migrate')) return finding
    const column = profile.columns[finding.place.replace('columns.', '') as ColumnKey]
    const fitting = column
      ? steps.filter(({ sql }) => sql.includes(`add column if not exists ${quoteName(column)} `))
      : steps.filter(({ sql }) => /^create (table|or replace view|index)/.test(sql))
    return fitting.length === 0 ? finding : { ...finding, mend: fitting.map(({ sql }) => `${sql};`).join('\n') }
  })
}

/** The settings of their day are written into them; a function nobody has installed is nobody's fault. */
async function staleFunctions(db: Database, table: JobTable, settings: DoctorSettings): Promise<Finding[]> {
  const statements = await planFunctions(db, table, settings)
  if (!statements.some((statement) => statement.startsWith('drop function'))) return []
  return [
    {
      level: 'warning',
      table: table.name,
      place: 'functions',
      what: 'the SQL functions for other languages were made for other settings or another shape of the table',
      follows: 'their workers claim and finish with the old leases, attempts and pauses',
      mend: 'bun run migrate',
    },
  ]
}

async function missingIndexes(db: Database, profile: Profile, { maxAttempts }: DoctorSettings): Promise<Finding[]> {
  const steps = await planMigration(db, { tables: [profile], maxAttempts, isAttached: true })
  return steps
    .filter(({ sql }) => /^(create|drop) index/.test(sql))
    .map(({ sql }) => ({
      level: 'warning',
      table: profile.table,
      place: 'indexes',
      what: sql.startsWith('drop') ? 'an index that a broken build left behind is invalid' : 'an index is missing',
      follows: 'every look at the table reads all of it; on a large table that is slow and loads the database',
      mend: `${sql};`,
    }))
}

/** A unique index that speaks of the status can refuse a finish: two done rows of one kind. */
function finishBreakers({ table, columns }: Profile, jobs: CatalogTable): Finding[] {
  return jobs.indexes
    .filter(({ isUnique, columns: keys, predicate }) => {
      const speaksOfStatus = keys.includes(columns.status) || (predicate ?? '').includes(columns.status)
      return isUnique && speaksOfStatus && !(keys.length === 1 && keys[0] === columns.id)
    })
    .map(({ name }) => ({
      level: 'warning',
      table,
      place: `index ${name}`,
      what: `the unique index ${name} depends on the status`,
      follows:
        'a change of status that breaks it fails: a finish then ends the job with FINISH_REJECTED, a reap sets the row aside',
      mend: null,
    }))
}

function policyFindings({ table, columns, policy }: Profile, settings: DoctorSettings): Finding[] {
  const findings: Finding[] = []
  const say = (level: Finding['level'], place: string, what: string, follows: string, mend: string | null): number =>
    findings.push({ level, table, place, what, follows, mend })
  if (columns.holder === null || columns.attempts === null || columns.leaseExpiresAt === null) {
    say(
      'note',
      'columns',
      'there is no column for holder, attempts or lease end',
      'the reaper recovers this table, but workers cannot take leases on it',
      'name all three in the profile and run bun run migrate',
    )
  }
  if (policy.onExpiry === 'requeue' && columns.nextRunAt === null) {
    say(
      'warning',
      'columns.nextRunAt',
      'there is no column for the due time',
      'a requeued job runs again at once: no backoff between attempts',
      'name a column in columns.nextRunAt and run bun run migrate',
    )
  }
  if (policy.queuedOrphans === 'republish' && !settings.hasDispatcher) {
    say(
      'warning',
      'policy.queuedOrphans',
      'republish is wanted, but nothing publishes',
      'queued orphans are only reported',
      'set QUEUE_PROVIDER=pgboss, or policy.queuedOrphans to "report" or "fail"',
    )
  }
  const stale = policy.staleAfterSec ?? settings.leaseTimeoutSec
  const beat = policy.heartbeatSec ?? settings.stages.heartbeatSec
  if (stale < 2 * beat) {
    say(
      'warning',
      'policy.staleAfterSec',
      `a heartbeat counts as stale after ${stale} s, and this table's workers beat every ${beat} s`,
      'one late beat costs a healthy job its run',
      `set policy.staleAfterSec to ${3 * beat} or more`,
    )
  }
  return findings
}

function fromSettings(warning: string): Finding {
  return {
    level: 'warning',
    table: null,
    place: 'settings',
    what: warning,
    follows: 'the settings are used as they are',
    mend: null,
  }
}

/** A job table that was looked at and found fit: its profile together with the SQL fragments made for it. */
import { type CatalogTable, quotedTable, readCatalog } from './catalog.ts'
import type { Database } from './client.ts'
import { createDialect, type Dialect } from './dialect.ts'
import type { ColumnKey, Profile } from './profile.ts'

export interface JobTable {
  name: string
  profile: Profile
  dialect: Dialect
}

/** The table cannot be used as it is. Each problem says what is wrong and what mends it. */
export class TableRejected extends Error {
  readonly table: string
  readonly problems: string[]

  constructor(table: string, problems: string[]) {
    super(`table ${table} cannot be used: ${problems.join('; ')}`)
    this.name = 'TableRejected'
    this.table = table
    this.problems = problems
  }
}

/** The types each column may have. An enum or domain of the team's own is fine for the status. */
const COLUMN_TYPES: Partial<Record<ColumnKey, { fits: RegExp; wanted: string }>> = {
  holder: { fits: /^(text|character varying.*)$/, wanted: 'text' },
  leaseExpiresAt: { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' },
  heartbeatAt: { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' },
  startedAt: { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' },
  nextRunAt: { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' },
  finishedAt: { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' },
  attempts: { fits: /^(smallint|integer|bigint)$/, wanted: 'integer' },
  maxAttempts: { fits: /^(smallint|integer|bigint)$/, wanted: 'integer' },
  expectedDurationMs: { fits: /^(smallint|integer|bigint)$/, wanted: 'integer' },
  progress: { fits: /^(smallint|integer|bigint|real|double precision|numeric.*)$/, wanted: 'integer' },
}

/** Looks the table up and makes its dialect, or throws what stands against it. Nothing is written. */
export async function openTable(db: Database, profile: Profile): Promise<JobTable> {
  const jobs = await readCatalog(db, profile.table)
  const events = profile.events ? await readCatalog(db, profile.events.table) : null
  const problems = [...jobProblems(profile, jobs), ...eventProblems(profile, events)]
  if (problems.length > 0 || jobs === null) throw new TableRejected(profile.table, problems)
  return { name: profile.table, profile, dialect: createDialect(profile, jobs, events) }
}

function jobProblems(profile: Profile, catalog: CatalogTable | null): string[] {
  const table = quotedTable(profile.table)
  if (!catalog) return [`there is no table ${profile.table}: run bun run migrate, or name your tables in REAPER_TABLES`]
  const problems: string[] = []
  for (const [key, column] of Object.entries(profile.columns) as [ColumnKey, string | null][]) {
    if (column === null) continue
    const found = catalog.columns.get(column)
    const type = COLUMN_TYPES[key]
    if (!found) {
      problems.push(`column ${column} is missing: run bun run migrate (bun run migrate --print shows the SQL)`)
    } else if (type && !type.fits.test(found.type)) {
      const mend = `alter table ${table} alter column "${column}" type ${type.wanted}`
      problems.push(`column ${column} is ${found.type}, expected ${type.wanted}: ${mend}`)
    }
  }
  if (!catalog.uniqueColumns.has(profile.columns.id)) {
    problems.push(`column ${profile.columns.id} is not unique by itself: it needs a primary key or a unique index`)
  }
  if (!catalog.canSelect || !catalog.canUpdate)
    problems.push(`not allowed: grant select, update on ${table} to current_user`)
  if (catalog.hidesRows)
    problems.push('row-level security hides rows from us: use a role with bypassrls, or a policy for it')
  return problems
}

function eventProblems(profile: Profile, catalog: CatalogTable | null): string[] {
  if (!profile.events) return []
  const { table, jobId, data } = profile.events
  if (!catalog) return [`there is no table ${table}: run bun run migrate`]
  const problems: string[] = []
  for (const column of [jobId, data]) {
    if (!catalog.columns.has(column)) problems.push(`column ${table}.${column} is missing`)
  }
  if (!/^jsonb?$/.test(catalog.columns.get(data)?.type ?? 'jsonb'))
    problems.push(`column ${table}.${data} is not json or jsonb`)
  if (!catalog.canInsert || !catalog.canSelect) {
    problems.push(`not allowed: grant insert, select on ${quotedTable(table)} to current_user`)
  }
  return problems
}

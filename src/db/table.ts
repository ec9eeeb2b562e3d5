/** A job table that was looked at and found fit: its profile together with the SQL fragments made for it. */
import { type CatalogTable, quotedTable, readCatalog } from './catalog.ts'
import type { Database } from './client.ts'
import { createDialect, type Dialect } from './dialect.ts'
import type { ColumnKey, Profile } from './profile.ts'
import { quoteName } from './sql.ts'

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
  const problems = [...jobProblems(profile, jobs), ...eventProblems(profile, jobs, events)]
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
  problems.push(...statusProblems(profile, catalog))
  if (!catalog.uniqueColumns.has(profile.columns.id)) {
    problems.push(`column ${profile.columns.id} is not unique by itself: it needs a primary key or a unique index`)
  }
  if (!catalog.canSelect || !catalog.canUpdate)
    problems.push(`not allowed: grant select, update on ${table} to current_user`)
  if (catalog.hidesRows)
    problems.push('row-level security hides rows from us: use a role with bypassrls, or a policy for it')
  return problems
}

function statusProblems(profile: Profile, catalog: CatalogTable): string[] {
  const column = catalog.columns.get(profile.columns.status)
  const room = Number(/^character varying\((\d+)\)$/.exec(column?.type ?? '')?.[1] ?? Infinity)
  return Object.values(profile.statuses).flatMap((word) => {
    if (column?.words && !column.words.includes(word)) {
      return [`status ${word} is not in the enum: alter type ${column.type} add value '${word}'`]
    }
    return word.length > room ? [`status ${word} does not fit into ${column?.type}`] : []
  })
}

/** An event that cannot be written would keep its job from ever moving, so it is found out before. */
function eventProblems(profile: Profile, jobs: CatalogTable | null, catalog: CatalogTable | null): string[] {
  if (!profile.events) return []
  const { table, jobId, data } = profile.events
  if (!catalog) return [`there is no table ${table}: run bun run migrate`]
  const problems: string[] = []
  for (const column of [jobId, data]) {
    if (!catalog.columns.has(column)) problems.push(`column ${table}.${column} is missing`)
  }
  if (!/^jsonb?$/.test(catalog.columns.get(data)?.type ?? 'jsonb')) {
    problems.push(`column ${table}.${data} is not json or jsonb`)
  }
  for (const { name, isNotNull, hasDefault } of catalog.columns.values()) {
    if (isNotNull && !hasDefault && name !== jobId && name !== data) {
      const mend = `alter table ${quotedTable(table)} alter column ${quoteName(name)} drop not null`
      problems.push(
        `column ${table}.${name} is NOT NULL and we have nothing to put there: give it a default, or ${mend}`,
      )
    }
  }
  const [idType, eventIdType] = [jobs?.columns.get(profile.columns.id)?.type, catalog.columns.get(jobId)?.type]
  if (idType && eventIdType && idType !== eventIdType && !/^(text|character varying)$/.test(eventIdType)) {
    problems.push(`column ${table}.${jobId} is ${eventIdType} and cannot hold an id of type ${idType}`)
  }
  for (const reference of catalog.references) {
    if (reference.column === jobId && !isSameTable(reference.table, profile.table)) {
      problems.push(
        `${table}.${jobId} must point to ${reference.table}, so events of ${profile.table} cannot stand there`,
      )
    }
  }
  if (!catalog.canInsert || !catalog.canSelect) {
    problems.push(`not allowed: grant insert, select on ${quotedTable(table)} to current_user`)
  }
  return problems
}

/** PostgreSQL prints a name with its schema and its quotes only where they are needed. */
function isSameTable(printed: string, table: string): boolean {
  const bare = printed.replaceAll('"', '')
  return bare === table || bare.endsWith(`.${table}`) || table.endsWith(`.${bare}`)
}

/** A job table that was looked at and found fit: its profile together with the SQL fragments made for it. */
import { type CatalogTable, readCatalog } from './catalog.ts'
import type { Database } from './client.ts'
import { createDialect, type Dialect } from './dialect.ts'
import { type EventsHome, findEventsHome, siblingOf } from './events-home.ts'
import { type Finding, inOneLine } from './finding.ts'
import { jobFindings } from './fitness.ts'
import type { Profile } from './profile.ts'

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

export interface Inspection {
  jobs: CatalogTable | null
  home: EventsHome | null
  findings: Finding[]
}

/** Looks the table and its events up and says what stands against them. Nothing is written. */
export async function inspectTable(db: Database, profile: Profile): Promise<Inspection> {
  const jobs = await readCatalog(db, profile.table)
  const events = profile.events && (await readCatalog(db, profile.events.table))
  const sibling = profile.events && (await readCatalog(db, siblingOf(profile.events.table)))
  const fits = jobFindings(profile, jobs)
  if (!jobs) return { jobs, home: null, findings: fits }
  const { home, findings } = findEventsHome(profile, jobs, { events, sibling })
  return { jobs, home, findings: [...fits, ...findings] }
}

/** Looks the table up and makes its dialect, or throws what stands against it. */
export async function openTable(db: Database, profile: Profile): Promise<JobTable> {
  const { jobs, home, findings } = await inspectTable(db, profile)
  const problems = findings.filter(({ level }) => level === 'error').map(inOneLine)
  if (problems.length > 0 || jobs === null) throw new TableRejected(profile.table, problems)
  return { name: profile.table, profile, dialect: createDialect(profile, jobs, home) }
}

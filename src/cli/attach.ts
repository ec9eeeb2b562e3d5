/** Looks at a team's table and proposes how to attach it: a profile, the SQL it takes, and what the reaper would do now. */
import { type CatalogTable, readCatalog } from '../db/catalog.ts'
import type { Database } from '../db/client.ts'
import { asOfToday, dryRun, type DryRun } from '../db/dry-run.ts'
import { isTimeout } from '../db/errors.ts'
import { siblingOf } from '../db/events-home.ts'
import type { Finding } from '../db/finding.ts'
import { planMigration } from '../db/migrate.ts'
import type { Profile } from '../db/profile.ts'
import { type GeneralRules, rulesFor } from '../db/rules.ts'
import { listEventTables, listTables, primaryKeyOf, surveyWords } from '../db/survey.ts'
import { inspectTable } from '../db/table.ts'
import { type Entry, entryOf } from './entry.ts'
import { type Guess, guessProfile, type TableFacts } from './guess.ts'
import { canHoldWord, rankIn, STATUS_COLUMNS } from './known-names.ts'

export interface AttachOptions {
  table: string
  events: string | null
  isRecoverOnly: boolean
  /** The table as the file describes it already; then nothing is guessed. */
  known: Profile | null
  rules: GeneralRules
  maxAttempts: number
  ladderMs: readonly number[]
  queuedOrphanSec: number
}

export interface Attachment {
  table: string
  /** Null when nothing can be proposed; the guesses and findings say why. */
  profile: Profile | null
  /** What belongs into the file of tables; null when it stands there already. */
  entry: Entry | null
  guesses: Guess[]
  sql: string[]
  dryRun: DryRun | null
  findings: Finding[]
}

/** Null when there is no such table. */
export async function lookToAttach(db: Database, options: AttachOptions): Promise<Attachment | null> {
  const { table, known } = options
  const catalog = await readCatalog(db, table)
  if (!catalog) return null
  const { base, profile, guesses } = known
    ? { base: null, profile: known, guesses: [] }
    : guessProfile(await readFacts(db, table, catalog), options)
  if (!profile) {
    return {
      table,
      profile,
      entry: null,
      guesses,
      sql: [],
      dryRun: null,
      findings: guesses.flatMap(nothingToPropose(table)),
    }
  }
  const findings = await findingsOf(db, profile, catalog)
  const steps = await planMigration(db, { tables: [profile], isAttached: true, maxAttempts: options.maxAttempts })
  const entry = base && entryOf(profile, base)
  const isFit = !findings.some(({ level }) => level === 'error')
  const run = isFit ? await tryDryRun(db, asOfToday(profile, catalog), options, findings) : null
  return { table, profile, entry, guesses, sql: steps.map(({ sql }) => sql), dryRun: run, findings }
}

/** Everything a guess can be made from. */
async function readFacts(db: Database, table: string, catalog: CatalogTable): Promise<TableFacts> {
  const primaryKey = await primaryKeyOf(db, table)
  const columns = [...catalog.columns.values()]
  const words: TableFacts['words'] = {}
  for (const column of columns) {
    if (rankIn(STATUS_COLUMNS, column.name) === -1 || !canHoldWord(column)) continue
    const id = primaryKey.length === 1 ? (primaryKey[0] ?? null) : null
    words[column.name] = await surveyWords(db, table, catalog, { column: column.name, id })
  }
  return {
    table,
    fullName: catalog.fullName,
    columns,
    primaryKey,
    uniqueColumns: catalog.uniqueColumns,
    words,
    eventTables: await listEventTables(db),
    takenTables: new Set((await listTables(db)).map((each) => each.table)),
  }
}

/** What stands against the table apart from what the migration adds. */
async function findingsOf(db: Database, profile: Profile, catalog: CatalogTable): Promise<Finding[]> {
  const { findings } = await inspectTable(db, asOfToday(profile, catalog))
  const { events } = profile
  if (!events || !(await readCatalog(db, events.table))) return findings
  const hasSibling = (await readCatalog(db, siblingOf(events.table))) !== null
  const about = (await inspectTable(db, profile)).findings.filter(({ place }) => place === `events ${events.table}`)
  if (hasSibling) return [...findings, ...about]
  const follows = `events of ${profile.table} get a table of their own, ${siblingOf(events.table)}`
  return [...findings, ...about.map((finding) => ({ ...finding, level: 'note' as const, follows, mend: null }))]
}

async function tryDryRun(
  db: Database,
  today: Profile,
  { rules, maxAttempts, ladderMs, queuedOrphanSec }: AttachOptions,
  findings: Finding[],
): Promise<DryRun | null> {
  try {
    return await dryRun(db, today, {
      settings: { rules: { ...rulesFor(today, rules), outage: null }, maxAttempts, ladderMs },
      orphanSec: today.policy.queuedOrphanSec ?? queuedOrphanSec,
    })
  } catch (error) {
    if (!isTimeout(error)) throw error
    findings.push({
      level: 'note',
      table: today.table,
      place: 'table',
      what: 'no dry run: the table is too large to look through without the index',
      follows: 'what the reaper would do is not known yet',
      mend: 'raise QUERY_TIMEOUT_SEC, or look again after --apply',
    })
    return null
  }
}

function nothingToPropose(table: string): (guess: Guess) => Finding[] {
  return ({ place, chosen, why }) =>
    chosen === null && ['columns.id', 'columns.status'].includes(place)
      ? [
          {
            level: 'error',
            table,
            place,
            what: why,
            follows: 'there is nothing to propose',
            mend: `name the column in an entry of your own for ${table}; docs/attach.md shows one`,
          },
        ]
      : []
}

/** Guesses that must be right before anything is written: a wrong one would move the wrong rows. */
export function doubtsOf(guesses: readonly Guess[]): Guess[] {
  return guesses.filter(
    ({ place, sureness }) => sureness === 'unsure' && /^(columns\.(id|status)|statuses\..*)$/.test(place),
  )
}

/** Which tables look like job tables, best first, and what somebody meant who named one that is not there. */
import { readCatalog } from '../db/catalog.ts'
import type { Database } from '../db/client.ts'
import { listTables, surveyWords, tablesWithColumn } from '../db/survey.ts'
import { closest } from '../job/closest.ts'
import { queueWords } from './guess-columns.ts'
import { canHoldWord, KNOWN_COLUMNS, type KnownColumn, plainName, rankIn, STATUS_COLUMNS } from './known-names.ts'

export interface JobTableLike {
  table: string
  statusColumn: string
  words: string[]
  /** How much speaks for it: words of a queue count most. */
  score: number
}

/** More than these are not looked into; the rest can still be named. */
const MOST_TABLES = 50

export async function findJobTables(db: Database): Promise<JobTableLike[]> {
  const tables = await tablesWithColumn(db, STATUS_COLUMNS.map(plainName))
  const found: JobTableLike[] = []
  for (const table of tables.slice(0, MOST_TABLES)) {
    const catalog = await readCatalog(db, table)
    if (!catalog) continue
    const columns = [...catalog.columns.values()]
    const kin = Object.values<KnownColumn>(KNOWN_COLUMNS).filter(({ names }) =>
      columns.some(({ name }) => rankIn(names, name) !== -1),
    )
    for (const column of columns) {
      if (rankIn(STATUS_COLUMNS, column.name) === -1 || !canHoldWord(column)) continue
      const { words, default: first } = await surveyWords(db, table, catalog, { column: column.name, id: null })
      const known = [...new Set([...words.map(({ word }) => word), ...(first === null ? [] : [first])])]
      const isNamed = /job|task|queue|work|run/i.test(table) ? 3 : 0
      const score = 4 * queueWords(known) + kin.length + isNamed
      if (queueWords(known) > 0) found.push({ table, statusColumn: column.name, words: known.slice(0, 8), score })
    }
  }
  return found.toSorted((a, b) => b.score - a.score || a.table.localeCompare(b.table))
}

/** The same name in another schema, else the nearest spelling; null when nothing is near. */
export async function meantTable(db: Database, name: string): Promise<string | null> {
  const tables = await listTables(db)
  const unquoted = name.replaceAll('"', '')
  const elsewhere = tables.find(({ bare }) => plainName(bare) === plainName(unquoted))
  if (elsewhere) return elsewhere.table
  const near = closest(
    unquoted,
    tables.flatMap(({ table, bare }) => [table, bare]),
  )
  return tables.find(({ table, bare }) => table === near || bare === near)?.table ?? null
}

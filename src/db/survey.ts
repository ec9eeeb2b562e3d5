/** Looks a team's tables over before anything is decided: reads only, and never more than some thousand rows of each. */
import { type CatalogTable, quotedTable } from './catalog.ts'
import type { Database } from './client.ts'
import { isShapeError, isTimeout } from './errors.ts'
import { raw, quoteName } from './sql.ts'

export interface StatusWords {
  /** What occurs or may occur, most frequent first; `rows` is rough, null where nothing tells. */
  words: { word: string; rows: number | null }[]
  /** An enum or a check constraint allows these words and no other. */
  isClosed: boolean
  /** The word a new row gets by default. */
  default: string | null
}

export interface TableName {
  schema: string
  /** As a profile would spell it: without the schema where the search path finds it. */
  table: string
  bare: string
}

export interface EventTable {
  table: string
  columns: { name: string; type: string; words: string[] | null }[]
  references: { column: string; table: string }[]
}

/** Rows that are looked at from either end of a table. */
const SAMPLE_ROWS = 5000
/** A table too bloated to answer in this time tells its words by its statistics alone. */
const SAMPLE_DEADLINE_SEC = 5

/** Every ordinary table that is not PostgreSQL's own. */
export async function listTables(db: Database): Promise<TableName[]> {
  return db.query(
    (run) => run<TableName[]>`
      select n.nspname as schema, c.relname as bare,
        case when pg_table_is_visible(c.oid) then c.relname::text else n.nspname || '.' || c.relname end as table
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p')
        and not c.relispartition
        and n.nspname <> 'information_schema'
        and n.nspname !~ '^pg_'
      order by 1, 2`,
  )
}

/** Tables with a column of one of these plain names: where a status may be. */
export async function tablesWithColumn(db: Database, plainNames: readonly string[]): Promise<string[]> {
  const rows = await db.query(
    (run) => run<{ table: string }[]>`
      select distinct case when pg_table_is_visible(c.oid) then c.relname::text else n.nspname || '.' || c.relname end as table
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relkind in ('r', 'p')
        and not c.relispartition
        and n.nspname <> 'information_schema'
        and n.nspname !~ '^pg_'
        and lower(regexp_replace(a.attname, '[\\s_-]', '', 'g')) = any(string_to_array(${plainNames.join(',')}, ','))
      order by 1
      limit 200`,
  )
  return rows.map(({ table }) => table)
}

/** The columns of the primary key, in order; none when there is no such key. */
export async function primaryKeyOf(db: Database, table: string): Promise<string[]> {
  const rows = await db.query(
    (run) => run<{ name: string }[]>`
      select a.attname as name
      from pg_index i
      cross join unnest(i.indkey) with ordinality as key(attnum, place)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = key.attnum
      where i.indrelid = to_regclass(${quotedTable(table)}) and i.indisprimary
      order by key.place`,
  )
  return rows.map(({ name }) => name)
}

/** The words of a status column: from its type, its constraint, the planner's statistics and a bounded sample. */
export async function surveyWords(
  db: Database,
  table: string,
  catalog: CatalogTable,
  { column, id }: { column: string; id: string | null },
): Promise<StatusWords> {
  const enumWords = catalog.columns.get(column)?.words ?? null
  const allowed = enumWords ?? wordsOfChecks(catalog, column)
  const seen = catalog.canSelect
    ? [...(await commonValues(db, table, column)), ...(await sampleWords(db, table, { column, id }))]
    : []
  const rows = new Map<string, number | null>((allowed ?? []).map((word) => [word, null]))
  for (const { word, rows: count } of seen) rows.set(word, Math.max(rows.get(word) ?? 0, count))
  const words = [...rows].map(([word, count]) => ({ word, rows: count }))
  return {
    words: words.toSorted((a, b) => (b.rows ?? 0) - (a.rows ?? 0)),
    isClosed: allowed !== null,
    default: await defaultWord(db, table, column),
  }
}

/** Tables with a json column, each with its columns and where they point: events may stand in one of them. */
export async function listEventTables(db: Database): Promise<EventTable[]> {
  return db.query(
    (run) => run<EventTable[]>`
      select
        case when pg_table_is_visible(c.oid) then c.relname::text else n.nspname || '.' || c.relname end as table,
        (select jsonb_agg(jsonb_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'words', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = a.atttypid)) order by a.attnum)
          from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
        (select coalesce(jsonb_agg(jsonb_build_object('column', a.attname, 'table', fn.nspname || '.' || fc.relname)), '[]')
          from pg_constraint f
          join pg_attribute a on a.attrelid = f.conrelid and a.attnum = any(f.conkey)
          join pg_class fc on fc.oid = f.confrelid
          join pg_namespace fn on fn.oid = fc.relnamespace
          where f.conrelid = c.oid and f.contype = 'f') as "references"
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p')
        and not c.relispartition
        and n.nspname <> 'information_schema'
        and n.nspname !~ '^pg_'
        and exists (
          select 1 from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.atttypid in ('json'::regtype, 'jsonb'::regtype))
      order by 1
      limit 500`,
  )
}

/** The quoted words of a check that speaks of this column alone: `CHECK (status = ANY (ARRAY['queued'::text, …]))`. */
function wordsOfChecks(catalog: CatalogTable, column: string): string[] | null {
  const own = catalog.checks.filter(
    ({ columns, definition }) => columns.length === 1 && columns[0] === column && definition.includes('='),
  )
  const words = own.flatMap(({ definition }) =>
    [...definition.matchAll(/'((?:[^']|'')*)'/g)].map(([, word = '']) => word.replaceAll("''", "'")),
  )
  return words.length > 0 ? [...new Set(words)] : null
}

async function commonValues(db: Database, table: string, column: string): Promise<{ word: string; rows: number }[]> {
  return db.query(
    (run) => run<{ word: string; rows: number }[]>`
      select common.word, (common.share * greatest(c.reltuples, 0))::float8 as rows
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      join pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = ${column}::text
      cross join unnest(s.most_common_vals::text::text[], s.most_common_freqs) as common(word, share)
      where c.oid = to_regclass(${quotedTable(table)})
      limit 100`,
  )
}

/** Old rows from the front of the table, and by the key what is newest (or, with random keys, anything). */
async function sampleWords(
  db: Database,
  table: string,
  { column, id }: { column: string; id: string | null },
): Promise<{ word: string; rows: number }[]> {
  const [from, word] = [raw(quotedTable(table)), raw(quoteName(column))]
  const sample = (order: ReturnType<typeof raw>): Promise<{ word: string; rows: number }[]> =>
    db.query(
      (run) => run<{ word: string; rows: number }[]>`
        select word, count(*)::float8 as rows
        from (select ${word}::text as word from ${from} ${order} limit ${SAMPLE_ROWS}) as sampled
        where word is not null
        group by word
        order by 2 desc
        limit 100`,
      { deadlineSec: SAMPLE_DEADLINE_SEC },
    )
  try {
    const front = await sample(raw(''))
    return id === null ? front : [...front, ...(await sample(raw(`order by ${quoteName(id)} desc`)))]
  } catch (error) {
    if (isTimeout(error) || isShapeError(error)) return []
    throw error
  }
}

async function defaultWord(db: Database, table: string, column: string): Promise<string | null> {
  const [row] = await db.query(
    (run) => run<{ value: string | null }[]>`
      select pg_get_expr(d.adbin, d.adrelid) as value
      from pg_attribute a
      join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
      where a.attrelid = to_regclass(${quotedTable(table)}) and a.attname = ${column}`,
  )
  return /^'((?:[^']|'')*)'(?:::|$)/.exec(row?.value ?? '')?.[1]?.replaceAll("''", "'") ?? null
}

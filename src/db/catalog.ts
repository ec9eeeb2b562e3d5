/** What the database says about a table: its columns and their types, its indexes and rules, and what we may do with it. */
import type { Database } from './client.ts'
import { quoteName } from './sql.ts'

export interface CatalogColumn {
  name: string
  /** As PostgreSQL would print it in a cast, e.g. `character varying(20)` or `media.job_status`. */
  type: string
  isNotNull: boolean
  hasDefault: boolean
  /** The words an enum type knows, in its order; null for any other type. */
  words: string[] | null
  canUpdate: boolean
  canInsert: boolean
}

export interface CatalogIndex {
  name: string
  isValid: boolean
  isUnique: boolean
  /** The leading columns' names; an expression is an empty name. */
  columns: string[]
  /** The condition of a partial index, as PostgreSQL prints it. */
  predicate: string | null
}

export interface CatalogTable {
  /** Schema and name, exactly as they are: `public.jobs`. */
  fullName: string
  columns: Map<string, CatalogColumn>
  /** Columns that alone are unique. */
  uniqueColumns: Set<string>
  indexes: CatalogIndex[]
  /** Check constraints, with the columns they speak of. */
  checks: { name: string; columns: string[]; definition: string }[]
  /** Columns that must point to another table, by its full name. */
  references: { column: string; table: string }[]
  canSelect: boolean
  canUpdate: boolean
  canInsert: boolean
  /** Sequences that an insert draws from and that we may not use. */
  lockedSequences: string[]
  /** Row-level security applies to us: rows may be hidden. */
  hidesRows: boolean
}

type CatalogRow = Omit<CatalogTable, 'columns' | 'uniqueColumns'> & { columns: CatalogColumn[] }

/** Null when there is no such table, or none that we can see. */
export async function readCatalog(db: Database, table: string): Promise<CatalogTable | null> {
  const [row] = await db.query(
    (sql) => sql<CatalogRow[]>`
      select
        n.nspname || '.' || c.relname as "fullName",
        (select coalesce(jsonb_agg(jsonb_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'isNotNull', a.attnotnull,
            'hasDefault', a.atthasdef or a.attidentity <> '',
            'words', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = a.atttypid),
            'canUpdate', has_column_privilege(c.oid, a.attnum, 'update'),
            'canInsert', has_column_privilege(c.oid, a.attnum, 'insert')) order by a.attnum), '[]')
          from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
        (select coalesce(jsonb_agg(jsonb_build_object(
            'name', x.relname,
            'isValid', i.indisvalid,
            'isUnique', i.indisunique,
            'columns', (select jsonb_agg(coalesce(a.attname, '') order by key.place)
              from unnest(i.indkey) with ordinality as key(attnum, place)
              left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = key.attnum and a.attnum > 0
              where key.place <= i.indnkeyatts),
            'predicate', pg_get_expr(i.indpred, i.indrelid)) order by x.relname), '[]')
          from pg_index i
          join pg_class x on x.oid = i.indexrelid
          where i.indrelid = c.oid) as indexes,
        (select coalesce(jsonb_agg(jsonb_build_object(
            'name', k.conname,
            'columns', (select jsonb_agg(a.attname) from pg_attribute a where a.attrelid = c.oid and a.attnum = any(k.conkey)),
            'definition', pg_get_constraintdef(k.oid))), '[]')
          from pg_constraint k
          where k.conrelid = c.oid and k.contype = 'c' and k.conkey is not null) as checks,
        (select coalesce(jsonb_agg(jsonb_build_object('column', a.attname, 'table', fn.nspname || '.' || fc.relname)), '[]')
          from pg_constraint f
          join pg_attribute a on a.attrelid = f.conrelid and a.attnum = any(f.conkey)
          join pg_class fc on fc.oid = f.confrelid
          join pg_namespace fn on fn.oid = fc.relnamespace
          where f.conrelid = c.oid and f.contype = 'f') as "references",
        has_table_privilege(c.oid, 'select') as "canSelect",
        has_table_privilege(c.oid, 'update') or has_any_column_privilege(c.oid, 'update') as "canUpdate",
        has_table_privilege(c.oid, 'insert') or has_any_column_privilege(c.oid, 'insert') as "canInsert",
        -- A default that calls nextval needs the sequence; an identity column does not.
        (select coalesce(jsonb_agg(s.oid::regclass::text), '[]')
          from pg_attrdef d
          join pg_depend p on p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refclassid = 'pg_class'::regclass
          join pg_class s on s.oid = p.refobjid and s.relkind = 'S'
          where d.adrelid = c.oid and case when s.relkind = 'S' then not has_sequence_privilege(s.oid, 'usage') end) as "lockedSequences",
        row_security_active(c.oid) as "hidesRows"
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      where c.oid = to_regclass(${quotedTable(table)}) and c.relkind in ('r', 'p')`,
  )
  if (!row) return null
  const alone = row.indexes.filter(
    ({ isUnique, isValid, predicate, columns }) => isUnique && isValid && predicate === null && columns.length === 1,
  )
  return {
    ...row,
    columns: new Map(row.columns.map((column) => [column.name, column])),
    uniqueColumns: new Set(alone.flatMap(({ columns }) => columns)),
  }
}

/** `media.Jobs` → `"media"."Jobs"`: names are taken exactly as they are written. */
export function quotedTable(table: string): string {
  return table.split('.').map(quoteName).join('.')
}

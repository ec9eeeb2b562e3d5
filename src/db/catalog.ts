/** What the database says about a table: its columns and their types, and what we may do with it. */
import type { Database } from './client.ts'
import { quoteName } from './sql.ts'

export interface CatalogColumn {
  name: string
  /** As PostgreSQL would print it in a cast, e.g. `character varying(20)` or `media.job_status`. */
  type: string
  isNotNull: boolean
  hasDefault: boolean
  /** The words an enum type knows; null for any other type. */
  words: string[] | null
}

export interface CatalogTable {
  columns: Map<string, CatalogColumn>
  /** Columns that alone are unique. */
  uniqueColumns: Set<string>
  canSelect: boolean
  canUpdate: boolean
  canInsert: boolean
  /** Columns that must point to another table. */
  references: { column: string; table: string }[]
  /** Row-level security applies to us: rows may be hidden. */
  hidesRows: boolean
}

/** Null when there is no such table, or none that we can see. */
export async function readCatalog(db: Database, table: string): Promise<CatalogTable | null> {
  const [row] = await db.query(
    (sql) => sql<
      {
        columns: CatalogColumn[] | null
        unique: string[] | null
        references: CatalogTable['references'] | null
        canSelect: boolean
        canUpdate: boolean
        canInsert: boolean
        hidesRows: boolean
      }[]
    >`
      select
        (select jsonb_agg(jsonb_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'isNotNull', a.attnotnull,
            'hasDefault', a.atthasdef or a.attidentity <> '',
            'words', (select jsonb_agg(e.enumlabel) from pg_enum e where e.enumtypid = a.atttypid)))
          from pg_attribute a
          where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns,
        (select jsonb_agg(a.attname)
          from pg_index i
          join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
          where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indpred is null and i.indnkeyatts = 1) as unique,
        (select jsonb_agg(jsonb_build_object('column', a.attname, 'table', f.confrelid::regclass::text))
          from pg_constraint f
          join pg_attribute a on a.attrelid = f.conrelid and a.attnum = any(f.conkey)
          where f.conrelid = c.oid and f.contype = 'f') as "references",
        has_table_privilege(c.oid, 'select') as "canSelect",
        has_table_privilege(c.oid, 'update') or has_any_column_privilege(c.oid, 'update') as "canUpdate",
        has_table_privilege(c.oid, 'insert') or has_any_column_privilege(c.oid, 'insert') as "canInsert",
        row_security_active(c.oid) as "hidesRows"
      from pg_class c
      where c.oid = to_regclass(${quotedTable(table)}) and c.relkind in ('r', 'p')`,
  )
  if (!row) return null
  return {
    columns: new Map((row.columns ?? []).map((column) => [column.name, column])),
    uniqueColumns: new Set(row.unique ?? []),
    references: row.references ?? [],
    canSelect: row.canSelect,
    canUpdate: row.canUpdate,
    canInsert: row.canInsert,
    hidesRows: row.hidesRows,
  }
}

/** `media.Jobs` → `"media"."Jobs"`: names are taken exactly as they are written. */
export function quotedTable(table: string): string {
  return table.split('.').map(quoteName).join('.')
}

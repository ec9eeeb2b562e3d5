/** The tag with which SQL fragments are made. It belongs to a client that never connects: fragments are only text and values. */
import postgres, { type PendingQuery, type Row } from 'postgres'

export const sql = postgres({ max: 1 })

export type Sql = typeof sql
export type Fragment = PendingQuery<Row[]>

/** A piece of SQL that is made of our own words or of text quoted by the two functions below, never of a value. */
export function raw(text: string): Fragment {
  return sql.unsafe(text)
}

export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

export function quoteLiteral(value: string): string {
  const quoted = `'${value.replaceAll("'", "''")}'`
  return value.includes('\\') ? `e${quoted.replaceAll('\\', '\\\\')}` : quoted
}

/**
 * An array as the text PostgreSQL reads it from. The client could do this too, but only after a query of its own on
 * every new connection, and when that one is cut off its error belongs to nobody.
 */
export function list(values: readonly (string | number)[]): string {
  const items = values.map((value) =>
    typeof value === 'number' ? String(value) : `"${value.replaceAll(/["\\]/g, '\\$&')}"`,
  )
  return `{${items.join(',')}}`
}

export function join(parts: readonly Fragment[], separator: Fragment = sql`, `): Fragment {
  const [first, ...rest] = parts
  if (first === undefined) return sql``
  return rest.reduce((all, part) => sql`${all}${separator}${part}`, first)
}

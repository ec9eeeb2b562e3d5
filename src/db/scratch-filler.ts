/** A value for a column that must have one and that we know nothing of but its type. */

export interface ColumnToFill {
  name: string
  /** As PostgreSQL prints it. */
  type: string
  /** Of an enum. */
  words: string[] | null
}

/** A different one for every n, as far as the type allows. Throws where nobody could guess. */
export function fillerFor({ name, type, words }: ColumnToFill, n: number): unknown {
  if (words !== null) return words[0]
  if (type.endsWith('[]')) return []
  const [, base = type, room] = /^([a-z ]+?)(?:\((\d+).*\))?( with(?:out)? time zone)?$/.exec(type) ?? []
  switch (base) {
    case 'text':
    case 'character varying':
    case 'character':
    case 'citext':
      return `prove-${n}`.slice(-Number(room ?? 63))
    case 'smallint':
    case 'integer':
    case 'bigint':
    case 'numeric':
    case 'real':
    case 'double precision':
      return n
    case 'uuid':
      return `00000000-0000-4000-8000-${String(n).padStart(12, '0')}`
    case 'boolean':
      return false
    case 'json':
    case 'jsonb':
      return {}
    case 'date':
      return '2000-01-01'
    case 'timestamp':
      return '2000-01-01T00:00:00Z'
    default:
      throw new Error(`column ${name} must have a value, and nobody can guess one of type ${type}`)
  }
}

/** Writes a fragment out as plain SQL with its values in place, for text that is stored in the database and not sent with parameters. */
import { type Fragment, quoteLiteral } from './sql.ts'

/** How the driver keeps a fragment: pieces of text, and between them values or further fragments. */
interface Pieces {
  strings: readonly string[]
  args: readonly unknown[]
}

export function render(fragment: Fragment): string {
  const { strings, args } = fragment as unknown as Pieces
  return strings.map((text, at) => (at === 0 ? text : `${renderValue(args[at - 1])}${text}`)).join('')
}

function renderValue(value: unknown): string {
  if (value === null) return 'null'
  if (typeof value === 'string') return quoteLiteral(value)
  if (typeof value === 'boolean') return String(value)
  if (typeof value === 'number' && Number.isFinite(value)) return String(value)
  if (isFragment(value)) return render(value)
  throw new Error(`a ${typeof value} cannot be written into SQL text`)
}

function isFragment(value: unknown): value is Fragment {
  return typeof value === 'object' && value !== null && 'strings' in value && 'args' in value
}

/** What stands behind `bun run attach`, as one object, or a sentence that says what is wrong with it. */
import { parseArgs } from 'node:util'

import { profileSchema } from '../db/profile.ts'
import { hintAt } from '../job/closest.ts'

export interface AttachArguments {
  table: string | null
  events: string | null
  file: string | null
  isRecoverOnly: boolean
  isApply: boolean
  isJson: boolean
}

export const ATTACH_USAGE =
  'bun run attach [TABLE] [--events NAME] [--recover-only] [--apply] [--file tables.json] [--json]'

const OPTIONS = {
  events: { type: 'string' },
  file: { type: 'string' },
  'recover-only': { type: 'boolean' },
  apply: { type: 'boolean' },
  json: { type: 'boolean' },
} as const

/** Thrown for arguments nobody can mean. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

export function readAttachArguments(argv: string[]): AttachArguments {
  const { values, positionals, tokens } = parseArgs({
    args: argv,
    options: OPTIONS,
    allowPositionals: true,
    strict: false,
    tokens: true,
  })
  for (const token of tokens) {
    if (token.kind !== 'option') continue
    if (!Object.hasOwn(OPTIONS, token.name)) {
      throw new UsageError(`there is no option ${token.rawName}${hintAt(token.name, Object.keys(OPTIONS))}`)
    }
    const takesValue = OPTIONS[token.name as keyof typeof OPTIONS].type === 'string'
    if (takesValue && !token.value) throw new UsageError(`${token.rawName}: expected a name behind it`)
    if (!takesValue && token.value !== undefined)
      throw new UsageError(`${token.rawName}: expected no value, got ${token.value}`)
  }
  if (positionals.length > 1)
    throw new UsageError(`expected one table, got ${positionals.join(' and ')}; attach them one by one`)
  const text = (value: unknown): string | null => (typeof value === 'string' ? value : null)
  const table = positionals[0] ?? null
  for (const name of [table, text(values.events)]) {
    if (name !== null && !profileSchema.shape.table.safeParse(name).success) {
      throw new UsageError(
        `expected a table name like jobs or media.jobs, spelled exactly as in the database and without quotes, got ${name}`,
      )
    }
  }
  const isApply = values.apply === true
  if (table === null && isApply) throw new UsageError('--apply: expected a table to apply it to')
  return {
    table,
    events: text(values.events),
    file: text(values.file),
    isRecoverOnly: values['recover-only'] === true,
    isApply,
    isJson: values.json === true,
  }
}

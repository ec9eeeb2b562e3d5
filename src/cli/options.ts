/** Options that several commands share, and what their values may be. */
import { type Command, InvalidArgumentError } from 'commander'

import type { JobFilter } from '../db/job-filter.ts'
import type { Profile } from '../db/profile.ts'
import { hintAt } from '../job/closest.ts'
import { STATUSES, type Status } from '../job/status.ts'
import { UsageError } from './command.ts'

export const TABLE = ['--table <name>', 'only this table'] as const
const OR_NONE = `; '' for those that have none`

export function addFilter(command: Command): Command {
  return command
    .option('--stage <stage>', `of this stage${OR_NONE}`)
    .option('--code <code>', `with this fail code${OR_NONE}`)
    .option('--holder <holder>', `held by this worker${OR_NONE}`)
}

export interface FilterOptions {
  stage?: string
  code?: string
  holder?: string
}

export function filterOf({ stage, code, holder }: FilterOptions): JobFilter {
  return { stage: orNone(stage), code: orNone(code), holder: orNone(holder) }
}

/** `--code ''` means those without a code. */
export function orNone(value: string | undefined): string | null | undefined {
  return value === '' ? null : value
}

export function wholeNumber(from: number, to: number): (text: string) => number {
  return (text) => {
    const number = Number(text)
    if (/^\d+$/.test(text) && number >= from && number <= to) return number
    throw new InvalidArgumentError(`expected a whole number from ${from} to ${to}`)
  }
}

/** The table by its name, or the end with the nearest one there is. */
export function tableNamed(name: string, tables: readonly string[]): string {
  if (tables.includes(name)) return name
  const meant = hintAt(name, tables) || `, only ${tables.join(', ')} (as REAPER_TABLES or LEASEHOLD_TABLES say)`
  throw new UsageError(`there is no table ${name} here${meant}`)
}

/** Our word for a status; a table's own word is understood too. */
export function statusNamed(word: string, profiles: readonly Profile[]): Status {
  const ours = STATUSES.find((status) => status === word)
  const theirs = profiles.flatMap(({ statuses }) => STATUSES.filter((status) => statuses[status] === word))
  const found = ours ?? theirs[0]
  if (found) return found
  const words = [...STATUSES, ...profiles.flatMap(({ statuses }) => Object.values(statuses))]
  throw new UsageError(`--status: expected one of ${STATUSES.join(', ')}, got ${word}${hintAt(word, words)}`)
}

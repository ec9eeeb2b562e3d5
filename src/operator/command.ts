/** What a person at a terminal would type to do the same: for the page and the command line alike. Pure, and safe to paste. */
import type { JobView } from '../db/job-view.ts'
import { shellWord } from '../job/shell-word.ts'
import type { Action } from './explain.ts'

/** What is running may be another attempt by the time this is pasted, so it says which one was meant. */
export function commandFor(
  action: Action,
  { table, id, status, attempt }: Pick<JobView, 'table' | 'id' | 'status' | 'attempt'>,
  { hasTable = true }: { hasTable?: boolean } = {},
): string {
  const options = [
    ...(hasTable ? ['--table', shellWord(table)] : []),
    ...(status === 'processing' ? ['--seen', `processing:${attempt}`] : []),
    `--reason '...'`,
  ]
  return withId(action, id, options)
}

/** An id like `--yes` would be taken for an option, and mean something else altogether. */
export function withId(command: string, id: string, options: readonly string[]): string {
  const word = shellWord(id)
  return (id.startsWith('-') ? [command, ...options, '--', word] : [command, word, ...options]).join(' ')
}

/** What is undefined is left out; null means those that have none. */
export function commandForAll(
  action: Action,
  table: string,
  filter: Record<string, string | null | undefined>,
): string {
  const options = Object.entries(filter).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key}=${shellWord(value ?? '')}`],
  )
  return [action, '--table', shellWord(table), ...options, `--reason '...'`, '--yes'].join(' ')
}

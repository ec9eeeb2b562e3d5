/** What a person at a terminal would type to do the same: for the page and the command line alike. Pure, and safe to paste. */
import type { JobView } from '../db/job-view.ts'
import type { Action } from './explain.ts'

/** Control characters (ANSI among them), what turns the text around and what cannot be seen. */
const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061C\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\uFEFF]/gu

/** As a shell reads it back, and harmless on the way there. */
export function shellWord(text: string): string {
  if (text.search(UNSEEN) !== -1) {
    const escaped = text.replaceAll(/[\\']/g, String.raw`\$&`).replaceAll(UNSEEN, escapeOf)
    return `$'${escaped}'`
  }
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

function escapeOf(letter: string): string {
  return `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`
}

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

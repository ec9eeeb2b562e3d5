/** Asks every table for itself, so that one that cannot be used, or does not answer, hides none of the others. */
import { describeError, isTimeout } from '../db/errors.ts'
import { TableRejected } from '../db/table.ts'
import { EXIT, type Context, type Exit } from './command.ts'
import { tableNamed } from './options.ts'
import type { Session } from './session.ts'

interface Refusal {
  table: string
  problems: string[]
}

export interface Across<T> {
  answers: T[]
  /** Tables that cannot be used or did not answer in time, and why. */
  refused: Refusal[]
  exit: Exit
}

export async function acrossTables<T>(
  { operator }: Session,
  { out, options, host }: Context<{ table?: string }>,
  ask: (table: string) => Promise<T>,
): Promise<Across<T>> {
  const tables = options.table === undefined ? operator.tables : [tableNamed(options.table, operator.tables)]
  // All of them to their end: what one still does must not be lost because another one breaks off.
  const asked = await Promise.allSettled(tables.map(ask))
  const errors = asked.flatMap((each) => (each.status === 'rejected' ? [each.reason as unknown] : []))
  const answers = asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))
  const rejected = errors.filter((error) => error instanceof TableRejected)
  const isAllLate = answers.length === 0 && rejected.length === 0
  const fatal = errors.find((error) => !(error instanceof TableRejected) && (isAllLate || !isTimeout(error)))
  if (fatal !== undefined) throw fatal

  const late = asked.flatMap((each, at) => lateOf(each, tables[at] ?? ''))
  for (const { message } of rejected) out.say(message)
  if (rejected.length > 0) out.say(`${host.call('doctor')} says what mends it.`)
  for (const { table, problems } of late) {
    out.say(`${table}: the database took too long: ${problems.join(', ')}. Does somebody lock the table?`)
  }
  const refused = [...rejected.map(({ table, problems }) => ({ table, problems })), ...late]
  return { answers, refused, exit: refused.length > 0 ? EXIT.unwell : EXIT.done }
}

function lateOf(each: PromiseSettledResult<unknown>, table: string): Refusal[] {
  if (each.status === 'fulfilled' || each.reason instanceof TableRejected) return []
  return [{ table, problems: [describeError(each.reason)] }]
}

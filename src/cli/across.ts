/** Asks every table for itself, so that one that cannot be used hides none of the others. */
import { TableRejected } from '../db/table.ts'
import { EXIT, type Context, type Exit } from './command.ts'
import { tableNamed } from './options.ts'
import type { Session } from './session.ts'

export interface Across<T> {
  answers: T[]
  /** Tables that cannot be used, and why. */
  refused: { table: string; problems: string[] }[]
  exit: Exit
}

export async function acrossTables<T>(
  { operator }: Session,
  { out, options, host }: Context<{ table?: string }>,
  ask: (table: string) => Promise<T>,
): Promise<Across<T>> {
  const tables = options.table === undefined ? operator.tables : [tableNamed(options.table, operator.tables)]
  const asked = await Promise.all(tables.map((table) => answerOrRefusal(() => ask(table))))
  const refusals = asked.flatMap((each) => (each instanceof TableRejected ? [each] : []))
  for (const { message } of refusals) out.say(message)
  if (refusals.length > 0) out.say(`${host.call('doctor')} says what mends it.`)
  return {
    answers: asked.flatMap((each) => (each instanceof TableRejected ? [] : [each])),
    refused: refusals.map(({ table, problems }) => ({ table, problems })),
    exit: refusals.length > 0 ? EXIT.unwell : EXIT.done,
  }
}

async function answerOrRefusal<T>(ask: () => Promise<T>): Promise<T | TableRejected> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof TableRejected) return error
    throw error
  }
}

/** Acts on jobs that are named, one after the other; one that is refused does not keep the next from being tried. */
import type { JobView } from '../db/job-view.ts'
import type { Action } from '../operator/explain.ts'
import type { ActCode, Acted } from '../operator/operator.ts'
import { type ActingOptions, deedOf, seenOf } from './acting.ts'
import { type Context, EXIT, type Exit } from './command.ts'
import { whenWords } from './job-words.ts'
import { findOne } from './one-job.ts'
import { tableNamed } from './options.ts'
import { progress } from './progress.ts'
import type { Session } from './session.ts'
import type { Column } from './table.ts'
import { harmless } from './text.ts'

interface Refusal {
  table: string | null
  id: string
  code: ActCode
  error: string
}

export async function actById(session: Session, context: Context<ActingOptions>, action: Action): Promise<Exit> {
  const { args, out, host } = context
  const deed = deedOf(context)
  const seen = seenOf(context)
  const done: Acted[] = []
  const refused: Refusal[] = []
  const tellProgress = progress(out)
  for (const id of args) {
    if (host.stopped.aborted) break
    const table = await tableOf(session, context, id)
    const answer = table === null ? null : await session.operator.act(action, { table, id, seen }, deed)
    if (answer?.ok) done.push(answer.value)
    else refused.push({ table, id, ...refusalOf(answer, session) })
    tellProgress(`${done.length + refused.length} of ${args.length}`)
  }
  if (out.isJson) out.json({ action, done, refused })
  else out.table(COLUMNS, done)
  for (const { id, error } of refused) out.say(`${action}: ${harmless(id)}: ${harmless(error, 2000)}`)
  if (action === 'cancel' && done.length > 0) out.say('If a worker runs it, that one learns so at its next heartbeat.')
  if (refused.length === 0) return EXIT.done
  return done.length === 0 && refused.every(({ code }) => code === 'NOT_FOUND') ? EXIT.nothing : EXIT.unwell
}

/** Where only one table can be meant, nothing needs to be looked up. */
async function tableOf(session: Session, context: Context<ActingOptions>, id: string): Promise<string | null> {
  const { tables } = session.operator
  const named = context.options.table
  if (named !== undefined) return tableNamed(named, tables)
  if (tables.length === 1) return tables[0] ?? null
  return (await findOne(session, context, id))?.job.table ?? null
}

function refusalOf(
  answer: { error: string; code: ActCode } | null,
  { operator }: Session,
): { error: string; code: ActCode } {
  return answer ?? { code: 'NOT_FOUND', error: `there is no such job in ${operator.tables.join(', ')}` }
}

const now =
  (words: (job: JobView) => string): ((acted: Acted) => string) =>
  ({ job }) =>
    job ? words(job) : ''

const COLUMNS: Column<Acted>[] = [
  { title: 'id', value: ({ id }) => id, isWhole: true },
  { title: 'table', value: ({ table }) => table },
  { title: 'status', value: now(({ status, word }) => status ?? word) },
  { title: 'attempt', value: now(({ attempt, maxAttempts }) => `${attempt} of ${maxAttempts}`) },
  { title: 'when', value: now(whenWords) },
]

/** Acts on jobs that are named, one after the other; one that is refused does not keep the next from being tried. */
import type { JobView } from '../db/job-view.ts'
import type { Action } from '../operator/explain.ts'
import type { ActCode, Acted } from '../operator/operator.ts'
import { type ActingOptions, deedOf, seenOf } from './acting.ts'
import { type Context, EXIT, type Exit } from './command.ts'
import { whenWords } from './job-words.ts'
import { findOne } from './one-job.ts'
import { tableNamed } from './options.ts'
import { once, progress } from './progress.ts'
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
  const { args, out, host, ifAbandoned } = context
  const deed = deedOf(context)
  const seen = seenOf(context)
  const done: Acted[] = []
  const refused: Refusal[] = []
  const tellProgress = progress(out)
  // All of them first: an id that leaves open which job is meant is found out before anything is done.
  const meant = await allMeant(session, context)
  const report = once((brokeOffAt?: string) => {
    if (out.isJson) out.json({ action, done, refused })
    else out.table(COLUMNS, done)
    for (const { id, error } of refused) out.say(`${action}: ${harmless(id)}: ${harmless(error, 2000)}`)
    if (action === 'cancel' && done.length > 0)
      out.say('If a worker runs it, that one learns so at its next heartbeat.')
    if (brokeOffAt === undefined) return
    const untried = args.length - done.length - refused.length - 1
    const others = untried > 0 ? `; ${untried} after it ${untried === 1 ? 'was' : 'were'} not tried` : ''
    out.say(`${action}: ${harmless(brokeOffAt)}: what became of it is not known${others}.`)
  })
  for (const { id, table } of meant) {
    if (host.stopped.aborted) break
    ifAbandoned(() => report(id))
    try {
      const answer = table === null ? null : await session.operator.act(action, { table, id, seen }, deed)
      if (answer?.ok) done.push(answer.value)
      else refused.push({ table, id, ...refusalOf(answer, session) })
    } catch (error) {
      // What was done before stays done, and has to be told.
      report(id)
      throw error
    }
    tellProgress(`${done.length + refused.length} of ${args.length}`)
  }
  report()
  if (refused.length === 0) return EXIT.done
  return done.length === 0 && refused.every(({ code }) => code === 'NOT_FOUND') ? EXIT.nothing : EXIT.unwell
}

async function allMeant(
  session: Session,
  context: Context<ActingOptions>,
): Promise<{ id: string; table: string | null }[]> {
  const meant: { id: string; table: string | null }[] = []
  for (const id of context.args) {
    if (context.host.stopped.aborted) break
    meant.push({ id, table: await tableOf(session, context, id) })
  }
  return meant
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

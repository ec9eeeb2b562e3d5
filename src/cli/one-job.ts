/** The job that is meant. Several tables may have one with the same id, and then only a person knows which. */
import type { JobDetails } from '../operator/operator.ts'
import { type Context, UsageError } from './command.ts'
import { tableNamed } from './options.ts'
import type { Session } from './session.ts'
import { harmless } from './text.ts'

type Asking = Context<{ table?: string }>

/** In every table, or in the one that is named. A table that cannot be used matters only when no other has the job. */
export function findAll({ operator }: Session, { options }: Asking, id: string): Promise<JobDetails[]> {
  const { table } = options
  return operator.find(id, table === undefined ? undefined : tableNamed(table, operator.tables))
}

/** Null when there is none; throws where the id alone does not say which. */
export async function findOne(session: Session, context: Asking, id: string): Promise<JobDetails | null> {
  const found = await findAll(session, context, id)
  if (found.length > 1) {
    const tables = found.map(({ job }) => job.table).join(' and in ')
    throw new UsageError(`job ${id} stands in ${tables}: say which with --table`)
  }
  return found[0] ?? null
}

export function sayNowhere({ operator }: Session, { out, options, host }: Asking, id: string): void {
  out.say(`There is no job ${harmless(id)} in ${options.table ?? operator.tables.join(', ')}.`)
  out.say(`${host.call('list')} shows which there are.`)
}

/** Which table a job stands in. Several may have one with the same id, and then only a person knows which is meant. */
import type { JobDetails } from '../operator/operator.ts'
import { acrossTables } from './across.ts'
import { type Context, UsageError } from './command.ts'
import type { Session } from './session.ts'

/** Null when there is none; throws where the id alone does not say which. */
export async function findOne(
  session: Session,
  context: Context<{ table?: string }>,
  id: string,
): Promise<JobDetails | null> {
  const { answers } = await acrossTables(session, context, (table) => session.operator.find(id, table))
  const found = answers.flat()
  if (found.length > 1) {
    throw new UsageError(
      `job ${id} stands in ${found.map(({ job }) => job.table).join(' and in ')}: say which with --table`,
    )
  }
  return found[0] ?? null
}

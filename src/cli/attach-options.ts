/** What stands behind `attach`, as one object, or a sentence that says what is wrong with it. */
import { profileSchema } from '../db/profile.ts'
import { UsageError } from './command.ts'

/** As commander reads them. */
export interface AttachOptions {
  events?: string
  file?: string
  recoverOnly?: boolean
  apply?: boolean
}

export interface AttachArguments {
  table: string | null
  events: string | null
  file: string | null
  isRecoverOnly: boolean
  isApply: boolean
}

export function attachArguments(table: string | undefined, given: AttachOptions): AttachArguments {
  const { events, file, recoverOnly: isRecoverOnly = false, apply: isApply = false } = given
  for (const name of [table, events]) {
    if (name !== undefined && !profileSchema.shape.table.safeParse(name).success) {
      throw new UsageError(
        `expected a table name like jobs or media.jobs, spelled exactly as in the database and without quotes, got ${name}`,
      )
    }
  }
  if (table === undefined && isApply) throw new UsageError('--apply: expected a table to apply it to')
  return { table: table ?? null, events: events ?? null, file: file ?? null, isRecoverOnly, isApply }
}

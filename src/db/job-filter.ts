/** Which jobs are meant, as a condition on `j`. The same for a list, a count and an action on all that match. */
import type { Status } from '../job/status.ts'
import type { Dialect } from './dialect.ts'
import { type Fragment, sql } from './sql.ts'

/** What is left out matches everything; null matches what has none, and an empty text is none. */
export interface JobFilter {
  status?: Status | undefined
  stage?: string | null | undefined
  code?: string | null | undefined
  holder?: string | null | undefined
}

/** Texts of a row are shown no longer than this; a filter by one that was cut matches all that begin with it. */
export const SHOWN_LENGTH = 200

export function matching(d: Dialect, { status, stage, code, holder }: JobFilter): Fragment {
  return sql`${status === undefined ? sql`true` : sql`${d.read.status} = ${d.status[status]}`}
    ${is(d.read.stage, stage)}
    ${is(d.read.failCode, code)}
    ${is(d.read.holder, holder)}`
}

function is(column: Fragment, value: string | null | undefined): Fragment {
  if (value === undefined) return sql``
  if (value === null) return sql`and coalesce(${column}::text, '') = ''`
  // As the index on dead letters has it; and, unless it may have been cut, the whole of it.
  // A code point is one or two units here, and one character there.
  return sql`and left(${column}::text, ${SHOWN_LENGTH}) = left(${value}, ${SHOWN_LENGTH})
    ${value.length < SHOWN_LENGTH ? sql`and ${column}::text = ${value}` : sql``}`
}

/** What the person saw when they decided; a job that has changed since is left alone. */
export interface Seen {
  status: Status
  attempt: number
  /** As it was shown. Tells two runs apart where attempts are not counted; left out, it is not asked. */
  holder?: string | null | undefined
}

/** For a row that is found by its id. */
export function isAsSeen(d: Dialect, { status, attempt, holder }: Seen): Fragment {
  const held = sql`left(${d.read.holder}::text, ${SHOWN_LENGTH})`
  return sql`and ${d.isStill(status)} and ${d.attempts} = ${attempt}
    ${holder === undefined ? sql`` : sql`and ${held} is not distinct from ${holder}::text`}`
}

/** Which jobs are meant, as a condition on `j`. The same for a list, a count and an action on all that match. */
import type { Status } from '../job/status.ts'
import type { Dialect } from './dialect.ts'
import { type Fragment, sql } from './sql.ts'

/** What is left out matches everything; null matches what has none. */
export interface JobFilter {
  status?: Status | undefined
  stage?: string | null | undefined
  code?: string | null | undefined
  holder?: string | null | undefined
}

export function matching(d: Dialect, { status, stage, code, holder }: JobFilter): Fragment {
  return sql`${status === undefined ? sql`true` : sql`${d.read.status} = ${d.status[status]}`}
    ${is(d.read.stage, stage)}
    ${is(d.read.failCode, code)}
    ${is(d.read.holder, holder)}`
}

function is(column: Fragment, value: string | null | undefined): Fragment {
  if (value === undefined) return sql``
  return value === null ? sql`and ${column} is null` : sql`and ${column}::text = ${value}`
}

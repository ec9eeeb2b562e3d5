/** The events of a job, and how many of which kind were told lately. Reads only, and bounded. */
import type { Database } from './client.ts'
import { sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface ToldEvent {
  /** ISO 8601 in UTC for our own events; whatever stands there, or null, for others. */
  at: string | null
  type: string
  details: Record<string, unknown>
}

/** The latest events of a job, oldest first. What is too large for a page is cut. */
export async function readTimeline(
  db: Database,
  { dialect: d }: JobTable,
  { id, limit }: { id: string; limit: number },
): Promise<ToldEvent[]> {
  const rows = await db.query(
    (run) => run<ToldEvent[]>`
      select left(data ->> 'at', 40) as at, left(coalesce(data ->> 'type', ''), 200) as type,
        case
          when length(data::text) > 20000 then jsonb_build_object('cut', left(data::text, 2000))
          when jsonb_typeof(data -> 'details') = 'object' then data -> 'details'
          when jsonb_typeof(data) = 'object' then data - 'type' - 'at' - 'table'
          else jsonb_build_object('data', data)
        end as details
      from (${d.timeline(sql`${id}`)}) as told
      order by data ->> 'at' desc nulls last, place desc
      limit ${limit}`,
  )
  return rows.toReversed()
}

export interface ToldCounts {
  /** Where to go on from; an id of the events table. */
  cursor: string | null
  counts: { type: string; minute: string; told: number }[]
}

/** How many events one reading looks at, and how many of the past the first one does. */
const READ_AT_MOST = 20_000

/**
 * How often our events were told since the last reading, by type and minute. Null when the events table has no number to
 * go by. Events of the last seconds are left for the next time: one with a smaller number may not be committed yet.
 */
export async function countTold(
  db: Database,
  { dialect: d }: JobTable,
  after: string | null,
): Promise<ToldCounts | null> {
  if (!d.toldAfter) return null
  const settled = sql`to_char(clock_timestamp() at time zone 'utc' - interval '5 seconds', 'YYYY-MM-DD"T"HH24:MI:SS')`
  const rows = await db.query(
    (run) => run<{ type: string; minute: string; told: number; last: string }[]>`
      with recent as materialized (
        ${d.toldAfter?.(after, READ_AT_MOST) ?? sql``}
      )
      select left(data ->> 'type', 200) as type, left(data ->> 'at', 16) as minute,
        (count(*) filter (where is_ours))::int as told, max(place)::text as last
      from recent
      where coalesce(data ->> 'at' < ${settled}, true)
      group by 1, 2`,
  )
  const cursor = rows.reduce<bigint | null>((most, { last }) => {
    const place = BigInt(last)
    return most === null || place > most ? place : most
  }, null)
  return {
    cursor: cursor === null ? after : String(cursor),
    counts: rows
      .filter(({ told, minute }) => told > 0 && minute !== null)
      .map(({ type, minute, told }) => ({ type, minute, told })),
  }
}

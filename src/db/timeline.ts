/** The events of a job, and how many of which kind were told lately. Reads only, and bounded. */
import type { Database } from './client.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface ToldEvent {
  /** ISO 8601 in UTC for our own events; whatever stands there, or null, for others. */
  at: string | null
  type: string
  details: Record<string, unknown>
}

/** The latest events of a job, oldest first; only those of some types, when they are named. What is too large for a page is cut. */
export async function readTimeline(
  db: Database,
  { dialect: d }: JobTable,
  { id, limit, types = null }: { id: string; limit: number; types?: readonly string[] | null },
): Promise<ToldEvent[]> {
  const wanted = types ? sql`where data ->> 'type' = any(${list(types)}::text[])` : sql``
  // Their numbers know better than what they say of their time, and cost nothing to read.
  const newestFirst = sql`place desc nulls last, case when place is null then data ->> 'at' end desc nulls last`
  const rows = await db.query(
    (run) => run<ToldEvent[]>`
      with latest as materialized (
        select place, data from (${d.timeline(sql`${id}`)}) as told
        ${wanted}
        order by ${newestFirst}
        limit ${limit}
      )
      select left(data ->> 'at', 40) as at, left(coalesce(data ->> 'type', ''), 200) as type,
        case
          when pg_column_size(data) > ${MOST_DETAILS} then jsonb_build_object('cut', 'too large to be shown: ' || pg_column_size(data) || ' bytes as stored')
          when length(data::text) > ${MOST_DETAILS} then jsonb_build_object('cut', left(data::text, 2000))
          when jsonb_typeof(data -> 'details') = 'object' then data -> 'details'
          when jsonb_typeof(data) = 'object' then data - 'type' - 'at' - 'table'
          else jsonb_build_object('data', data)
        end as details
      from latest
      order by ${newestFirst}`,
  )
  return inBounds(rows).toReversed()
}

/** From the newest on, as much as a person can take in at once; what is older is only named. */
function inBounds(newestFirst: readonly ToldEvent[]): ToldEvent[] {
  let length = 0
  return newestFirst.map((event) => {
    length += JSON.stringify(event.details).length
    return length <= MOST_IN_ALL ? event : { ...event, details: { cut: 'there is too much to be shown at once' } }
  })
}

const MOST_IN_ALL = 1_000_000

/** Our own events are hardly ever longer than this. The stored size costs nothing to ask; 5 MB as text cost a tenth of a second. */
const MOST_DETAILS = 20_000

export interface ToldCounts {
  /** Where to go on from; an id of the events table. */
  cursor: string | null
  /** There is more to read already. */
  isBehind: boolean
  counts: { type: string; minute: string; told: number }[]
}

/** How many events one reading looks at, and how many of the past the first one does. */
const READ_AT_MOST = 20_000

/**
 * How often our events were told since the last reading, by type and minute. Null when the events table has no number to
 * go by. Our events of the last seconds, and what stands behind them, are left for the next time: one with a smaller number
 * may not be committed yet. Events of others, whatever time they speak of, hold nothing up.
 */
export async function countTold(
  db: Database,
  { dialect: d }: JobTable,
  after: string | null,
): Promise<ToldCounts | null> {
  if (!d.toldAfter) return null
  const at = (offset: string): Fragment =>
    sql`to_char(clock_timestamp() at time zone 'utc' + ${offset}::interval, 'YYYY-MM-DD"T"HH24:MI:SS')`
  const rows = await db.query(
    (run) => run<{ type: string | null; minute: string | null; told: number; read: number; last: string }[]>`
      with recent as materialized (
        ${d.toldAfter?.(after, READ_AT_MOST) ?? sql``}
      )
      select left(data ->> 'type', 200) as type, left(data ->> 'at', 16) as minute,
        (count(*) filter (where is_ours))::int as told, count(*)::int as read, max(place)::text as last
      from recent
      where place < coalesce(
        (select min(place) from recent where is_ours and data ->> 'at' between ${at('-5 seconds')} and ${at('1 minute')}),
        9223372036854775807)
      group by 1, 2`,
  )
  const cursor = rows.reduce<bigint | null>((most, { last }) => {
    const place = BigInt(last)
    return most === null || place > most ? place : most
  }, null)
  return {
    cursor: cursor === null ? after : String(cursor),
    isBehind: rows.reduce((sum, { read }) => sum + read, 0) >= READ_AT_MOST,
    counts: rows.flatMap(({ type, minute, told }) =>
      told > 0 && type !== null && minute !== null ? [{ type, minute, told }] : [],
    ),
  }
}

/** How the events of a job table are written and read: fragments for use inside other statements. */
import { type CatalogTable, quotedTable } from './catalog.ts'
import { type EventsHome, filledColumns } from './events-home.ts'
import type { Profile } from './profile.ts'
import { type Fragment, join, list, quoteLiteral, quoteName, raw, sql } from './sql.ts'

export interface EventsInSql {
  /** An INSERT of one event per row of `source`, for use inside the statement that makes the change. */
  tell: (event: EventRows) => Fragment
  /**
   * The events of a job of this table, as `data`, with `place`: their number where they all have one. Where ours stand
   * beside the team's own table, both are read.
   */
  timeline: (id: Fragment) => Fragment
  /** All events after a number, as `place`, `data` and `is_ours` (of this table); null where events have no numbers. */
  toldAfter: ((place: string | null, limit: number) => Fragment) | null
  /** All events of ours that a job of this table has: their types and the attempts they speak of. */
  toldBy: (id: Fragment) => Fragment
  /** The types of the events a job has of these types; only those of one attempt when `by` is given. */
  told: (event: { id: Fragment; types: string[]; by?: { attempt: Fragment; holder: Fragment } }) => Fragment
}

interface EventRows {
  jobId: Fragment
  type: Fragment
  /** A jsonb expression. */
  details: Fragment
  /** FROM clause and what follows it. */
  source: Fragment
}

export function eventsInSql(profile: Profile, jobs: CatalogTable, home: EventsHome | null): EventsInSql {
  const idType = raw(jobs.columns.get(profile.columns.id)?.type ?? 'text')
  return {
    tell: (event) => tell(profile, jobs, home, event),
    timeline: (id) => timeline(profile, home, sql`${id}::text::${idType}::text`),
    toldAfter: profile.events && home && isNumbered(home) ? toldAfter(profile, profile.events.data, home) : null,
    toldBy: (id) => {
      if (!profile.events || !home) return sql`select null::text as type, null::bigint as attempt where false`
      const { jobId, data } = profile.events
      const json = readableJson(data, home.catalog)
      const attempt = sql`${json} -> 'details' ->> 'attempt'`
      return sql`
        select ${json} ->> 'type' as type, case when ${attempt} ~ '^[0-9]{1,15}$' then (${attempt})::bigint end as attempt
        from ${raw(quotedTable(home.table))} as e
        where e.${raw(quoteName(jobId))} = ${id}::text::${raw(home.catalog.columns.get(jobId)?.type ?? 'text')}
          and ${json} ->> 'table' = ${profile.table}::text`
    },
    told: ({ id, types, by }) => {
      if (!profile.events || !home) return sql`select null::text as type where false`
      const { jobId, data } = profile.events
      const json = readableJson(data, home.catalog)
      const author = by
        ? sql`and ${json} -> 'details' ->> 'attempt' = ${by.attempt}::text
          and ${json} -> 'details' ->> 'holder' = ${by.holder}`
        : sql``
      return sql`
        select ${json} ->> 'type' as type
        from ${raw(quotedTable(home.table))} as e
        where e.${raw(quoteName(jobId))} = ${id}::text::${raw(home.catalog.columns.get(jobId)?.type ?? 'text')}
          and ${json} ->> 'type' = any(${list(types)}::text[])
          and ${json} ->> 'table' = ${profile.table}::text
          ${author}`
    },
  }
}

function tell(profile: Profile, jobs: CatalogTable, home: EventsHome | null, event: EventRows): Fragment {
  if (!profile.events || !home) return sql`select 1 where false`
  const { events } = profile
  const typeOf = (column: string): string => home.catalog.columns.get(column)?.type ?? 'text'
  const idType = jobs.columns.get(profile.columns.id)?.type
  const value = (column: string): Fragment => {
    if (column === events.jobId) {
      return idType === typeOf(column) ? event.jobId : sql`${event.jobId}::text::${raw(typeOf(column))}`
    }
    // An explicit cast cuts a text to the length of its column, where an assignment would refuse it.
    if (column === events.type) return sql`${event.type}::text::${raw(typeOf(column))}`
    if (column === events.at) return sql`clock_timestamp()`
    if (column !== events.data) return raw(`${quoteLiteral(String(events.values[column]))}::${typeOf(column)}`)
    return sql`jsonb_build_object(
      'type', ${event.type},
      'table', ${profile.table}::text,
      'details', ${event.details},
      'at', to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))`
  }
  const filled = filledColumns(events, home.catalog)
  return sql`
    insert into ${raw(quotedTable(home.table))} (${raw(filled.map(quoteName).join(', '))})
    select ${join(filled.map(value))}
    ${event.source}`
}

/** Whether the events are numbered by a unique `id`, as ours are and most teams' own. */
function isNumbered({ catalog }: EventsHome): boolean {
  return /^(bigint|integer)$/.test(catalog.columns.get('id')?.type ?? '') && catalog.uniqueColumns.has('id')
}

/** The id comes as the table itself would print it, so that an event table of another type finds it too. */
function timeline(profile: Profile, home: EventsHome | null, id: Fragment): Fragment {
  if (!profile.events || !home) return sql`select null::bigint as place, null::jsonb as data where false`
  const { jobId, data } = profile.events
  // Numbers of two tables say nothing about each other.
  const place = isNumbered(home) && !home.beside ? sql`e.id::bigint` : sql`null::bigint`
  const from = (table: string, catalog: CatalogTable): Fragment => {
    const json = readableJson(data, catalog)
    return sql`
      select ${place} as place, ${json} as data
      from ${raw(quotedTable(table))} as e
      where e.${raw(quoteName(jobId))} = ${id}::${raw(catalog.columns.get(jobId)?.type ?? 'text')}
        and coalesce(${json} ->> 'table', ${profile.table}::text) = ${profile.table}::text`
  }
  const ours = from(home.table, home.catalog)
  return home.beside ? sql`${ours} union all ${from(profile.events.table, home.beside)}` : ours
}

/** Without a number to start after: the last `limit` of them. */
function toldAfter(profile: Profile, data: string, home: EventsHome): NonNullable<EventsInSql['toldAfter']> {
  const events = raw(quotedTable(home.table))
  const json = readableJson(data, home.catalog)
  return (place, limit) => sql`
    select e.id as place, ${json} as data, coalesce(${json} ->> 'table' = ${profile.table}::text, false) as is_ours
    from ${events} as e
    where e.id > ${place === null ? sql`(select coalesce(max(id), 0) - ${limit} from ${events})` : sql`${place}::bigint`}
    order by e.id
    limit ${limit}`
}

/** A NUL or half a surrogate pair as an escape: allowed in a json column, and an error in everything that reads it. */
const UNREADABLE = String.raw`(?<!\\)(\\\\)*\\u(0000|[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F]))|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]`

/** The data of an event `e` as jsonb. A json column may hold texts that jsonb refuses: they are quoted instead of read. */
function readableJson(data: string, catalog: CatalogTable): Fragment {
  const column = sql`e.${raw(quoteName(data))}`
  if (catalog.columns.get(data)?.type !== 'json') return column
  const isUnreadable = sql`${column}::text ~ ${raw(quoteLiteral(UNREADABLE))}`
  return sql`case when ${isUnreadable} then jsonb_build_object('unreadable', left(${column}::text, 2000)) else ${column}::jsonb end`
}

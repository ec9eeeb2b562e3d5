/** Turns a profile into named SQL fragments, once. In every statement the job row goes by the alias `j`. */
import { JITTER_FRACTION } from '../job/backoff.ts'
import { STATUSES, type Status } from '../job/status.ts'
import { type CatalogTable, quotedTable } from './catalog.ts'
import { type EventsInSql, eventsInSql } from './event-sql.ts'
import type { EventsHome } from './events-home.ts'
import type { ColumnKey, Profile } from './profile.ts'
import { type Fragment, join, list, quoteLiteral, quoteName, raw, sql } from './sql.ts'

export interface Dialect extends EventsInSql {
  table: Fragment
  /** The table as PostgreSQL's own id. */
  regclass: Fragment
  /** Reads a column of `j`; a typed NULL where the table has none. */
  read: Record<ColumnKey, Fragment>
  /** The status words as literals of the column's own type, so that enums and partial indexes both fit. */
  status: Record<Status, Fragment>
  /**
   * The status as a check on a row that is found by its id. Written so that no partial index on the status can serve it:
   * the planner, when it believes that few rows are processing, would scan all of them for every row it looks for.
   */
  isStill: (status: Status) => Fragment
  /** The type of the id, for casts. */
  idType: Fragment
  /** `column = value, …` for the columns the table has; the others are left out. */
  set: (values: Partial<Record<ColumnKey, Fragment>>) => Fragment
  /** The moment from which a queued job may run; oldest first is also the order of claims. */
  dueAt: Fragment
  /** Attempts so far, NULL read as none. */
  attempts: Fragment
  /** When a job without lease and heartbeat was last seen alive, as far as the table can tell. */
  lastSeenAt: Fragment
  /** When its status changed last, as far as the table writes that down. */
  changedAt: Fragment
  /** What makes a write the holder's own: status, holder and attempt. Which race it closes: a zombie against a newer attempt. */
  isHeldBy: (holder: Fragment, attempt: Fragment) => Fragment
  /** Every column of a job as text, as rows of `place`, `name` and `value`, in the table's own order. */
  everyColumn: Fragment
}

const TIMESTAMPS: ReadonlySet<ColumnKey> = new Set([
  'leaseExpiresAt',
  'heartbeatAt',
  'startedAt',
  'nextRunAt',
  'finishedAt',
])
const NUMBERS: ReadonlySet<ColumnKey> = new Set(['attempts', 'maxAttempts', 'progress', 'expectedDurationMs'])

/** Diagnosis may be cut short; a holder may not, it is part of the fence. */
const CUT_TO_FIT: ReadonlySet<ColumnKey> = new Set(['failCode', 'failReason'])

/** The time of the statement: not frozen by a surrounding transaction, and the same for all its rows. */
export const NOW: Fragment = sql`statement_timestamp()`

export function createDialect(profile: Profile, jobs: CatalogTable, home: EventsHome | null): Dialect {
  const { columns } = profile
  const statusType = jobs.columns.get(columns.status)?.type ?? 'text'
  const has = (column: string | null): column is string => column !== null && jobs.columns.has(column)
  // A timestamp without a zone could be off by hours either way, so it tells us nothing about age.
  const isPointInTime = (column: string | null): column is string =>
    has(column) && (jobs.columns.get(column)?.type ?? '').endsWith('with time zone')

  const read = Object.fromEntries(
    Object.entries(columns).map(([key, column]) => [key, column === null ? absent(key as ColumnKey) : of(column)]),
  ) as Record<ColumnKey, Fragment>
  if (profile.stage !== null) read.stage = raw(`${quoteLiteral(profile.stage)}::text`)

  /** An explicit cast cuts a text to the length of its column, where an assignment would refuse it. */
  const assign = (column: string, cutToFit: boolean, value: Fragment): Fragment => {
    const type = jobs.columns.get(column)?.type ?? 'text'
    return cutToFit
      ? sql`${raw(quoteName(column))} = (${value})::${raw(type)}`
      : sql`${raw(quoteName(column))} = ${value}`
  }

  const isStill = (status: Status): Fragment =>
    sql`${of(columns.status)} is not distinct from ${raw(`${quoteLiteral(profile.statuses[status])}::${statusType}`)}`

  const idType = raw(jobs.columns.get(columns.id)?.type ?? 'text')
  const changedAt = [columns.finishedAt, profile.updatedAt].filter(isPointInTime).map(of)
  const seenAt = [columns.startedAt, ...profile.otherTimestamps].filter(isPointInTime).map(believable)

  return {
    table: raw(quotedTable(profile.table)),
    regclass: sql`to_regclass(${quotedTable(profile.table)})`,
    read,
    status: Object.fromEntries(
      STATUSES.map((status) => [status, raw(`${quoteLiteral(profile.statuses[status])}::${statusType}`)]),
    ) as Record<Status, Fragment>,
    isStill: (status) => isStill(status),
    idType,
    set(values) {
      const present = (Object.entries(values) as [ColumnKey, Fragment][]).filter(([key]) => columns[key] !== null)
      const assignments = present.map(([key, value]) => assign(columns[key] ?? '', CUT_TO_FIT.has(key), value))
      const touched = has(profile.updatedAt) ? [sql`${raw(quoteName(profile.updatedAt))} = clock_timestamp()`] : []
      return join([...assignments, ...(values.status ? touched : [])])
    },
    dueAt: isPointInTime(profile.createdAt)
      ? sql`coalesce(${read.nextRunAt}, ${of(profile.createdAt)})`
      : read.nextRunAt,
    attempts: sql`coalesce(${read.attempts}, 0)`,
    changedAt: changedAt.length > 0 ? sql`coalesce(${join(changedAt)})` : sql`null::timestamptz`,
    lastSeenAt: seenAt.length > 0 ? sql`coalesce(${join(seenAt)})` : sql`null::timestamptz`,
    isHeldBy: (holder, attempt) =>
      sql`${isStill('processing')}
          and ${read.holder} = ${holder}
          and ${read.attempts} = ${attempt}`,
    everyColumn: everyColumn(jobs),
    ...eventsInSql(profile, jobs, home),
  }
}

/** Column by column: as one JSON document, a single text that JSON cannot hold would hide all the others. */
function everyColumn({ columns }: CatalogTable): Fragment {
  const rows = [...columns.keys()].map(
    (name, at) => sql`(${raw(String(at))}, ${raw(quoteLiteral(name))}, ${of(name)}::text)`,
  )
  return sql`(values ${join(rows)}) as field(place, name, value)`
}

function of(column: string): Fragment {
  return sql`j.${raw(quoteName(column))}`
}

function absent(key: ColumnKey): Fragment {
  if (TIMESTAMPS.has(key)) return sql`null::timestamptz`
  return NUMBERS.has(key) ? sql`null::bigint` : sql`null::text`
}

/** A time far in the future is a mistake of somebody's, not a sign of life. */
function believable(column: string): Fragment {
  return sql`case when ${of(column)} <= ${NOW} + interval '24 hours' then ${of(column)} end`
}

/** Seconds after the lock is held. Durations are numbers of seconds, never days or months, which depend on a time zone. */
export function fromNow(sec: Fragment): Fragment {
  return sql`clock_timestamp() + make_interval(secs => ${sec})`
}

/** The pause after an attempt: its rung of the ladder, spread upwards per row so that a mass requeue does not return as one. */
export function backoffSec(attempt: Fragment, ladderMs: readonly number[]): Fragment {
  return sql`(${list(ladderMs)}::float8[])[least(greatest(${attempt}, 1), ${ladderMs.length})]
    / 1000 * (1 + random() * ${JITTER_FRACTION}::float8)`
}

/** Picks a number by stage from a table of names and numbers, exactly spelled. */
export function byStage(stage: Fragment, values: Record<string, number>, otherwise: number): Fragment {
  return sql`coalesce(
    (select known.value from unnest(${list(Object.keys(values))}::text[], ${list(Object.values(values))}::float8[]) as known(name, value)
      where known.name = ${stage}::text),
    ${otherwise}::float8)`
}

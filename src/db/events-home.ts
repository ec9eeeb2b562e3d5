/**
 * Where the events of a job table stand: in the team's own events table, or, where that one cannot take them (a foreign
 * key to another table, a NOT NULL column we know nothing for), in a table of ours beside it. One view shows both.
 */
import { type CatalogTable, quotedTable } from './catalog.ts'
import type { Finding } from './finding.ts'
import type { Profile } from './profile.ts'
import { quoteName } from './sql.ts'

type Events = NonNullable<Profile['events']>

export interface EventsHome {
  table: string
  catalog: CatalogTable
  /** The team's own events table, where ours stand beside it and it can tell of the same jobs. */
  beside: CatalogTable | null
}

/** `job_events` → `job_events_leasehold`, in the same schema. */
export function siblingOf(eventsTable: string): string {
  return `${eventsTable}_leasehold`
}

/** Both tables as one. */
export function eventsViewOf(eventsTable: string): string {
  return `${eventsTable}_all`
}

/** The home of this table's events, and what is to be said about it. No home and no error: the profile wants no events. */
export function findEventsHome(
  profile: Profile,
  jobs: CatalogTable,
  catalogs: { events: CatalogTable | null; sibling: CatalogTable | null },
): { home: EventsHome | null; findings: Finding[] } {
  const { events } = profile
  if (!events) return { home: null, findings: [] }
  const say = (level: Finding['level'], what: string, follows: string, mend: string | null): Finding => ({
    level,
    table: profile.table,
    place: `events ${events.table}`,
    what,
    follows,
    mend,
  })
  if (!catalogs.events) {
    const finding = say(
      'error',
      `there is no table ${events.table}`,
      'a change of a job could not be told, so the table is not touched',
      'run bun run migrate, or set events to null',
    )
    return { home: null, findings: [finding] }
  }
  const reasons = whyNot(profile, jobs, catalogs.events)
  if (reasons.length === 0)
    return { home: { table: events.table, catalog: catalogs.events, beside: null }, findings: [] }
  const { sibling } = catalogs
  const follows = `events of ${profile.table} stand in ${siblingOf(events.table)}; ${eventsViewOf(events.table)} shows both`
  if (sibling && whyNot(profile, jobs, sibling).length === 0) {
    const notes = reasons.map(({ what, mend }) => say('note', what, follows, mend))
    const beside = tellsOf(jobs, profile, catalogs.events) ? catalogs.events : null
    return { home: { table: siblingOf(events.table), catalog: sibling, beside }, findings: notes }
  }
  const found = sibling ? whyNot(profile, jobs, sibling) : reasons
  return {
    home: null,
    findings: found.map(({ what, mend }) =>
      say(
        'error',
        what,
        'a change of a job could not be told, so the table is not touched',
        sibling
          ? mend
          : `${mend ? `${mend}, or ` : ''}run bun run migrate, which adds ${siblingOf(events.table)} for them`,
      ),
    ),
  }
}

/** Whether events of the team's own, in a table that refuses ours, can be read as those of a job. */
function tellsOf(jobs: CatalogTable, { columns: { id }, events }: Profile, catalog: CatalogTable): boolean {
  const typeOf = (column: string | undefined): string => catalog.columns.get(column ?? '')?.type ?? ''
  const fitsId =
    typeOf(events?.jobId) === jobs.columns.get(id)?.type || /^(text|character varying)/.test(typeOf(events?.jobId))
  return fitsId && /^jsonb?$/.test(typeOf(events?.data)) && catalog.canSelect && !catalog.hidesRows
}

/** Whether the team's own table cannot take the events of this job table. */
export function needsSibling(profile: Profile, jobs: CatalogTable, events: CatalogTable): boolean {
  return whyNot(profile, jobs, events).length > 0
}

/** An event that cannot be written would keep its job from ever moving, so it is found out before. */
function whyNot(profile: Profile, jobs: CatalogTable, catalog: CatalogTable): { what: string; mend: string | null }[] {
  if (!profile.events) return []
  const events = profile.events
  const table = catalog.fullName.endsWith(siblingSuffix(events)) ? siblingOf(events.table) : events.table
  const { jobId, data } = events
  const reasons: { what: string; mend: string | null }[] = []
  const add = (what: string, mend: string | null = null): number => reasons.push({ what, mend })
  for (const column of [jobId, data]) if (!catalog.columns.has(column)) add(`column ${table}.${column} is missing`)
  if (!/^jsonb?$/.test(catalog.columns.get(data)?.type ?? 'jsonb')) add(`column ${table}.${data} is not json or jsonb`)
  for (const { name, isNotNull, hasDefault } of catalog.columns.values()) {
    if (!isNotNull || hasDefault || filledColumns(events, catalog).includes(name)) continue
    add(
      `column ${table}.${name} is NOT NULL and we have nothing to put there`,
      `name a value for it in events.values, or alter table ${quotedTable(table)} alter column ${quoteName(name)} drop not null`,
    )
  }
  const [idType, eventIdType] = [jobs.columns.get(profile.columns.id)?.type, catalog.columns.get(jobId)?.type]
  if (idType && eventIdType && idType !== eventIdType && !/^(text|character varying)$/.test(eventIdType)) {
    add(`column ${table}.${jobId} is ${eventIdType} and cannot hold an id of type ${idType}`)
  }
  for (const reference of catalog.references) {
    if (reference.column === jobId && reference.table !== jobs.fullName) {
      const points = reference.table.replace(/^public\./, '')
      add(`${table}.${jobId} must point to ${points}, so events of ${profile.table} cannot stand there`)
    }
  }
  const words = catalog.columns.get(events.type ?? '')?.words
  const unknown = Object.values(events.names).filter((name) => words && !words.includes(name))
  if (unknown.length > 0) add(`the enum of ${table}.${events.type} does not know ${unknown.join(', ')}`)
  if (!catalog.canInsert || !catalog.canSelect) {
    add('not allowed', `grant insert, select on ${quotedTable(table)} to current_user`)
  }
  for (const sequence of catalog.lockedSequences)
    add('not allowed', `grant usage on sequence ${sequence} to current_user`)
  if (catalog.hidesRows) add(`row-level security on ${table} may refuse our events`)
  return reasons
}

function siblingSuffix({ table }: Events): string {
  return siblingOf(table.split('.').at(-1) ?? table)
}

/** The columns an event of ours fills in this table: those it needs, and what is there of the rest. */
export function filledColumns(events: Events, catalog: CatalogTable): string[] {
  const { jobId, data, type, at, values } = events
  const isTime = (name: string): boolean => (catalog.columns.get(name)?.type ?? '').startsWith('timestamp')
  const isWord = (name: string): boolean => {
    const column = catalog.columns.get(name)
    return column !== undefined && (column.words !== null || /^(text|character varying)/.test(column.type))
  }
  return [
    jobId,
    data,
    ...(type !== null && isWord(type) ? [type] : []),
    ...(at !== null && isTime(at) ? [at] : []),
    ...Object.keys(values).filter((name) => catalog.columns.has(name) && ![jobId, data, type, at].includes(name)),
  ]
}

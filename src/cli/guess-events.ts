/** Where the events of a job table go: a table of the team's that looks like it, one that was named, or a new one. */
import type { Profile } from '../db/profile.ts'
import { profileSchema } from '../db/profile.ts'
import type { EventTable } from '../db/survey.ts'
import type { Guess, GuessOptions, TableFacts } from './guess.ts'
import { isPlain, plainName, rankIn } from './known-names.ts'

type Events = NonNullable<Profile['events']>

const JOB_IDS = ['job_id', 'task_id', 'job', 'jobs_id', 'job_uuid']
const DATA = ['data', 'payload', 'details', 'event_data', 'body', 'meta', 'metadata', 'event', 'info']
const TYPES = ['type', 'event_type', 'event', 'event_name', 'kind', 'name', 'action']
const TIMES = [
  'ts',
  'at',
  'created_at',
  'occurred_at',
  'timestamp',
  'time',
  'event_at',
  'event_time',
  'inserted_at',
  'logged_at',
]

export function guessEvents(
  facts: TableFacts,
  spelling: Profile,
  { events: named, isRecoverOnly }: GuessOptions,
): { events: Events | null; guess: Guess } {
  const base = spelling.events
  const say = (
    events: Events | null,
    why: string,
    sureness: Guess['sureness'],
  ): { events: Events | null; guess: Guess } => ({
    events,
    guess: { place: 'events.table', chosen: events?.table ?? null, why, sureness },
  })
  if (!base) return say(null, 'this spelling has none', 'sure')
  if (named !== null) {
    const table = facts.eventTables.find((each) => each.table === named)
    if (table) return say(columnsOf(table, facts, base), 'as you said', 'sure')
    const isThere = facts.takenTables.has(named)
    return say(
      { ...base, table: named },
      isThere ? 'as you said, though it has no json column' : 'as you said; the migration makes it',
      'sure',
    )
  }
  const candidates = facts.eventTables
    .map((table) => ({ table, ...kinship(table, facts) }))
    .filter(({ score }) => score > 0)
    .toSorted((a, b) => b.score - a.score)
  const [best] = candidates
  if (best) return say(columnsOf(best.table, facts, base), best.why, best.score >= 4 ? 'sure' : 'likely')
  if (isRecoverOnly) return say(null, 'no events table was found; nothing is added', 'sure')
  return say(
    { ...base, table: freeName(facts, base.table) },
    'no events table was found; the migration makes it',
    'sure',
  )
}

/** How much a table looks like the events of this one; 0: not at all. */
function kinship(table: EventTable, facts: TableFacts): { score: number; why: string } {
  const none = { score: 0, why: '' }
  const [schema, bare] = split(table.table)
  const isOurs = table.references.some((reference) => reference.table === facts.fullName)
  const isNamed = /event|history|timeline/i.test(bare) || (isOurs && /log|audit/i.test(bare))
  if (table.table === facts.table || bare.endsWith('_leasehold') || !isNamed) return none
  if (!jobIdOf(table, facts) || !dataOf(table) || !profileSchema.shape.table.safeParse(table.table).success) return none
  if (isOurs) return { score: 4, why: 'by its name, and it points to this table' }
  const [ownSchema, ownBare] = split(facts.table)
  const [stem, ownStem] = [stemOf(bare), stemOf(ownBare)]
  if (schema !== ownSchema || (stem !== '' && stem !== ownStem)) return none
  return { score: stem === ownStem ? 3 : 2, why: 'by its name, and it has a job id and a json column' }
}

function columnsOf(table: EventTable, facts: TableFacts, base: Events): Events {
  const text = /^(text|character varying)/
  const type = pick(table, TYPES, (column) => column.words !== null || text.test(column.type))
  const at = pick(table, TIMES, (column) => column.type.startsWith('timestamp'))
  return {
    ...base,
    table: table.table,
    jobId: jobIdOf(table, facts) ?? base.jobId,
    data: dataOf(table) ?? base.data,
    type: type ?? base.type,
    at: at ?? base.at,
  }
}

function jobIdOf(table: EventTable, facts: TableFacts): string | null {
  const pointer = table.references.find((reference) => reference.table === facts.fullName)?.column
  if (pointer !== undefined && isPlain(pointer)) return pointer
  const own = split(facts.table)[1].replace(/s$/i, '')
  return pick(table, [...JOB_IDS, `${own}_id`], () => true)
}

function dataOf(table: EventTable): string | null {
  const isJson = ({ type }: { type: string }): boolean => /^jsonb?$/.test(type)
  return pick(table, DATA, isJson) ?? table.columns.find((each) => isJson(each) && isPlain(each.name))?.name ?? null
}

function pick(
  { columns }: EventTable,
  names: readonly string[],
  fits: (column: EventTable['columns'][number]) => boolean,
): string | null {
  const fitting = columns.filter((column) => rankIn(names, column.name) !== -1 && fits(column) && isPlain(column.name))
  return fitting.toSorted((a, b) => rankIn(names, a.name) - rankIn(names, b.name))[0]?.name ?? null
}

/** `clip_jobs` and `clip_events` share the stem `clip`; `job_events` has none and serves any table. */
function stemOf(bare: string): string {
  return plainName(bare).replaceAll(/jobs?|tasks?|queue|events?|history|timeline|log/g, '')
}

function freeName({ table, takenTables }: TableFacts, standard: string): string {
  const [schema, bare] = split(table)
  const qualified = (name: string): string => (schema === null ? name : `${schema}.${name}`)
  const names = [standard, `${bare.slice(0, 40)}_events`, `${bare.slice(0, 40)}_lease_events`].map(qualified)
  return names.find((name) => !takenTables.has(name)) ?? qualified(standard)
}

function split(table: string): [string | null, string] {
  const [first = table, second] = table.split('.')
  return second === undefined ? [null, first] : [first, second]
}

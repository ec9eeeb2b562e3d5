/** From what a table looks like to a proposed profile, with what was guessed, why, and how sure that is. No database. */
import type { CatalogColumn } from '../db/catalog.ts'
import type { ColumnKey, Profile } from '../db/profile.ts'
import { profileSchema } from '../db/profile.ts'
import { BUILT_IN_PROFILES } from '../db/profiles.ts'
import type { EventTable, StatusWords } from '../db/survey.ts'
import { STATUSES } from '../job/status.ts'
import { guessColumns } from './guess-columns.ts'
import { guessEvents } from './guess-events.ts'
import { guessStatuses } from './guess-statuses.ts'
import { CREATED_COLUMNS, isPlain, KNOWN_COLUMNS, plainName, rankIn, UPDATED_COLUMNS } from './known-names.ts'

export type Sureness = 'sure' | 'likely' | 'unsure'

export interface Guess {
  /** Where in the profile, e.g. `columns.holder` or `statuses.queued`. */
  place: string
  /** Null: the table has none and none is added. */
  chosen: string | null
  why: string
  sureness: Sureness
}

export interface TableFacts {
  /** As the profile is to name it. */
  table: string
  /** Schema and name, as references spell it. */
  fullName: string
  columns: Pick<CatalogColumn, 'name' | 'type' | 'words'>[]
  primaryKey: string[]
  uniqueColumns: ReadonlySet<string>
  /** The words of each column that may be the status. */
  words: Record<string, StatusWords>
  eventTables: EventTable[]
  /** Names that a new events table cannot have. */
  takenTables: ReadonlySet<string>
}

export interface GuessOptions {
  /** The events table somebody named. */
  events: string | null
  /** Add no column: what the table lacks is null. */
  isRecoverOnly: boolean
}

export type BaseName = keyof typeof BUILT_IN_PROFILES

/** `profile` is null when no column can be the id or the status: then there is nothing to propose. */
export interface Proposal {
  base: BaseName
  profile: Profile | null
  guesses: Guess[]
}

export function guessProfile(facts: TableFacts, options: GuessOptions): Proposal {
  const { found, guesses } = guessColumns(facts)
  const statuses = guessStatuses(found.status === null ? undefined : facts.words[found.status])
  const base = chooseBase(facts, found, statuses.statuses)
  guesses.push({ place: 'extends', ...base })
  if (found.id === null || found.status === null) return { base: base.chosen, profile: null, guesses }

  const spelling = BUILT_IN_PROFILES[base.chosen](facts.table)
  const columns = fillColumns(facts, found, { spelling, options, guesses })
  guesses.push(...statuses.guesses)
  const times = guessTimes(facts, columns, spelling)
  guesses.push(...times.guesses)
  const events = guessEvents(facts, spelling, options)
  guesses.push(events.guess)
  const profile: Profile = {
    ...spelling,
    columns: { ...columns, id: found.id, status: found.status },
    ...times.times,
    statuses: { ...spelling.statuses, ...statuses.statuses },
    events: events.events,
    policy: { ...spelling.policy },
  }
  if (columns.attempts === null && profile.policy.onExpiry === 'requeue') {
    profile.policy.onExpiry = 'fail'
    const why = 'nothing counts attempts, so a job that is requeued could return for ever; expired jobs fail instead'
    guesses.push({ place: 'policy.onExpiry', chosen: 'fail', why, sureness: 'sure' })
  }
  return { base: base.chosen, profile: profileSchema.parse(profile), guesses }
}

type Found = Record<ColumnKey, string | null>

/** A name that is added is spelled as most of the table's own names are. */
function chooseBase(
  { columns }: TableFacts,
  found: Found,
  statuses: Partial<Profile['statuses']>,
): { chosen: BaseName; why: string; sureness: Sureness } {
  if (styleOf(columns) !== 'snake') {
    return { chosen: 'camelCase', why: 'most of its names are in camelCase', sureness: 'sure' }
  }
  const orphan = BUILT_IN_PROFILES.orphan('')
  const words = STATUSES.every((status) => plainName(statuses[status] ?? '') === plainName(orphan.statuses[status]))
  const reports = found.failReason === orphan.columns.failReason || found.finishedAt === orphan.columns.finishedAt
  const added = (['holder', 'leaseExpiresAt', 'heartbeatAt', 'attempts', 'nextRunAt'] as const).every(
    (key) => found[key] === orphan.columns[key],
  )
  // After the migration the counter is there, in our own spelling: the answer must stay the same.
  const counts = found.maxAttempts !== null || (found.attempts !== null && !added)
  if (words && reports && !counts) {
    const why = 'its words and columns are those of a table that counts no attempts: orphans fail'
    return { chosen: 'orphan', why, sureness: 'likely' }
  }
  return { chosen: 'snake_case', why: 'most of its names are in snake_case', sureness: 'sure' }
}

function styleOf(columns: TableFacts['columns']): 'snake' | 'camel' | 'pascal' {
  const names = columns.map(({ name }) => name)
  const humps = names.filter((name) => /\p{Ll}\p{Lu}/u.test(name))
  if (humps.length <= names.filter((name) => name.includes('_')).length) return 'snake'
  return humps.every((name) => /^\p{Lu}/u.test(name)) ? 'pascal' : 'camel'
}

/** What the table lacks: null, or a new column in the table's own spelling under a name that is free. */
function fillColumns(
  facts: TableFacts,
  found: Found,
  { spelling, options, guesses }: { spelling: Profile; options: GuessOptions; guesses: Guess[] },
): Found {
  const style = styleOf(facts.columns)
  const taken = new Set(facts.columns.map(({ name }) => name))
  const filled = { ...found }
  for (const key of Object.keys(KNOWN_COLUMNS) as (keyof typeof KNOWN_COLUMNS)[]) {
    const name = spelling.columns[key]
    if (found[key] !== null || name === null) continue
    const place = `columns.${key}`
    const said = guesses.find((guess) => guess.place === place)?.why
    if (options.isRecoverOnly) {
      replace(guesses, { place, chosen: null, why: said ?? 'the table has none; nothing is added', sureness: 'sure' })
      continue
    }
    const styled = style === 'pascal' ? capital(name) : name
    const added = taken.has(styled) ? besides(styled, style) : styled
    filled[key] = added
    taken.add(added)
    const why = said === undefined ? 'the table has none; the migration adds it' : `${said}; the migration adds its own`
    replace(guesses, { place, chosen: added, why, sureness: 'sure' })
  }
  return filled
}

function replace(guesses: Guess[], guess: Guess): void {
  const at = guesses.findIndex(({ place }) => place === guess.place)
  if (at === -1) guesses.push(guess)
  else guesses[at] = guess
}

function besides(name: string, style: 'snake' | 'camel' | 'pascal'): string {
  if (style === 'snake') return `leasehold_${name}`
  return `${style === 'camel' ? 'leasehold' : 'Leasehold'}${capital(name)}`
}

function capital(name: string): string {
  return name.slice(0, 1).toUpperCase() + name.slice(1)
}

/** The times that are only read, and the one that follows every change. */
function guessTimes(
  { columns }: TableFacts,
  used: Found,
  spelling: Profile,
): { times: Pick<Profile, 'createdAt' | 'updatedAt' | 'otherTimestamps'>; guesses: Guess[] } {
  const free = columns.filter(({ name }) => !Object.values(used).includes(name))
  const pick = (names: readonly string[], fits: RegExp): string | null => {
    const fitting = free.filter(({ name, type }) => rankIn(names, name) !== -1 && fits.test(type) && isPlain(name))
    return fitting.toSorted((a, b) => rankIn(names, a.name) - rankIn(names, b.name))[0]?.name ?? null
  }
  // A time without a zone could be off by hours, so it tells no age; to write one is what the team does too.
  const zoned = KNOWN_COLUMNS.startedAt.fits
  const updatedAt = pick(UPDATED_COLUMNS, /^timestamp/)
  const createdAt = pick(CREATED_COLUMNS, zoned)
  const { startedAt } = KNOWN_COLUMNS
  const others = [pick([...startedAt.names, ...startedAt.vague], zoned), pick(UPDATED_COLUMNS, zoned), createdAt]
  const known = others.filter((each) => each !== null)
  // Missing ones are passed over, so the built-in list says the same when ours is a part of it, in its order.
  const isSaid =
    spelling.otherTimestamps.filter((each) => free.some(({ name }) => name === each)).join() === known.join()
  const say = (place: string, chosen: string | null): Guess => ({
    place,
    chosen,
    why: chosen === null ? 'no column of that name and a fitting type' : 'by its name and type',
    sureness: 'sure',
  })
  return {
    times: { updatedAt, createdAt, otherTimestamps: isSaid ? spelling.otherTimestamps : known },
    guesses: [say('createdAt', createdAt), say('updatedAt', updatedAt)],
  }
}

/** Which column holds what, by name and only where the type fits; each column once. */
import type { ColumnKey } from '../db/profile.ts'
import type { Guess, Sureness, TableFacts } from './guess.ts'
import {
  canHoldWord,
  isPlain,
  KNOWN_COLUMNS,
  type KnownColumn,
  plainName,
  rankIn,
  STATUS_COLUMNS,
  STATUS_WORDS,
} from './known-names.ts'

type Column = TableFacts['columns'][number]

interface Choice {
  chosen: string | null
  why: string
  sureness: Sureness
}

export interface ColumnGuesses {
  found: Record<ColumnKey, string | null>
  guesses: Guess[]
}

export function guessColumns(facts: TableFacts): ColumnGuesses {
  const id = guessId(facts)
  const status = guessStatusColumn(facts, id.chosen)
  const found: Partial<Record<ColumnKey, string | null>> = { id: id.chosen, status: status.chosen }
  const guesses: Guess[] = [
    { place: 'columns.id', ...id },
    { place: 'columns.status', ...status },
  ]
  for (const [key, known] of Object.entries<KnownColumn>(KNOWN_COLUMNS) as [ColumnKey, KnownColumn][]) {
    const free = facts.columns.filter(({ name }) => !Object.values(found).includes(name))
    const choice = guessColumn(withOurs(known), free, found)
    found[key] = choice?.chosen ?? null
    if (choice) guesses.push({ place: `columns.${key}`, ...choice })
  }
  return { found: found as ColumnGuesses['found'], guesses }
}

/** Also the columns a migration of ours added beside one of the same name and another type. */
function withOurs(known: KnownColumn): KnownColumn {
  return { ...known, names: [...known.names.map((name) => `leasehold_${name}`), ...known.names] }
}

/** Names that mostly mean a person or a tenant; a holder is emptied at every requeue, so it takes another sign of leases. */
const OWNERS = ['owner', 'owner_id', 'assigned_to', 'assignee', 'processor']

function guessColumn(
  known: KnownColumn,
  free: Column[],
  found: Partial<Record<ColumnKey, string | null>>,
): Choice | null {
  const { names, vague = [], fits, wanted } = known
  const all = [...names, ...vague]
  const named = free
    .filter(({ name }) => rankIn(all, name) !== -1)
    .toSorted((a, b) => rankIn(all, a.name) - rankIn(all, b.name))
  const taken = named.find(({ name, type }) => fits.test(type) && isPlain(name))
  if (taken) {
    const { name, type } = taken
    const isVague = rankIn(names, name) === -1
    const retries = /retr/i.test(name) ? '; it may count retries, which is one less than attempts' : ''
    const why = isVague ? `the name suggests it, and ${type} fits${retries}` : `by its name, and ${type} fits`
    return { chosen: name, why, sureness: isVague ? 'likely' : 'sure' }
  }
  const isHolder = names.includes('locked_by')
  const owner = isHolder
    ? free.find(({ name, type }) => rankIn(OWNERS, name) !== -1 && fits.test(type) && isPlain(name))
    : undefined
  if (owner && (found.leaseExpiresAt ?? found.heartbeatAt)) {
    return { chosen: owner.name, why: 'beside a lease or a heartbeat it is who holds the job', sureness: 'likely' }
  }
  if (owner) return { chosen: null, why: `${owner.name} may be a person, so it is not taken`, sureness: 'likely' }
  const [unfit] = named
  if (!unfit) return null
  const why = isPlain(unfit.name)
    ? `${unfit.name} is ${unfit.type}, expected ${wanted}, so it is not taken`
    : `a profile cannot spell ${unfit.name}, so it is not taken`
  return { chosen: null, why, sureness: 'sure' }
}

function guessId({ columns, primaryKey, uniqueColumns }: TableFacts): Choice {
  const [only] = primaryKey
  if (primaryKey.length === 1 && only !== undefined && isPlain(only)) {
    return { chosen: only, why: 'it is the primary key', sureness: 'sure' }
  }
  const names = ['id', 'job_id', 'uuid', 'guid', 'task_id']
  const plain = columns.filter(({ name }) => isPlain(name))
  const named = plain
    .filter(({ name }) => rankIn(names, name) !== -1)
    .toSorted((a, b) => rankIn(names, a.name) - rankIn(names, b.name))
  const unique = named.find(({ name }) => uniqueColumns.has(name))
  if (unique) return { chosen: unique.name, why: 'by its name, and it is unique', sureness: 'likely' }
  const other = plain.find(({ name }) => uniqueColumns.has(name))
  if (other) return { chosen: other.name, why: 'no primary key of one column; this one is unique', sureness: 'unsure' }
  const [looks] = named
  if (looks) return { chosen: looks.name, why: 'by its name alone: it is not unique by itself', sureness: 'unsure' }
  return { chosen: null, why: 'no column is unique by itself', sureness: 'unsure' }
}

/** Among columns of such a name, the one whose words are those of a queue. */
function guessStatusColumn({ columns, words }: TableFacts, id: string | null): Choice {
  const named = columns.filter(({ name }) => name !== id && rankIn(STATUS_COLUMNS, name) !== -1)
  const fitting = named
    .filter((column) => canHoldWord(column) && isPlain(column.name))
    .map(({ name, type }) => ({ name, type, known: queueWords(words[name]?.words.map(({ word }) => word) ?? []) }))
    .toSorted((a, b) => b.known - a.known || rankIn(STATUS_COLUMNS, a.name) - rankIn(STATUS_COLUMNS, b.name))
  const [best] = fitting
  if (best && best.known > 0) {
    const isOnly = fitting.filter(({ known }) => known > 0).length === 1
    const why = `by its name, and its words are those of a queue${isOnly ? '' : '; other columns have such words too'}`
    return { chosen: best.name, why, sureness: isOnly && best.known > 1 ? 'sure' : 'likely' }
  }
  if (best)
    return { chosen: best.name, why: 'by its name alone: no word of a queue was found in it', sureness: 'unsure' }
  const [unfit] = named
  if (unfit)
    return { chosen: null, why: `${unfit.name} is ${unfit.type}, expected a text or an enum`, sureness: 'unsure' }
  return {
    chosen: null,
    why: `no column is called ${STATUS_COLUMNS.slice(0, 3).join(', ')} or the like`,
    sureness: 'unsure',
  }
}

/** For how many of the four statuses there is a word. */
export function queueWords(words: readonly string[]): number {
  const plain = new Set(words.map(plainName))
  return Object.values(STATUS_WORDS).filter((list) => list.some((word) => plain.has(plainName(word)))).length
}

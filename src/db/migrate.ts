/** Brings tables up to what we need, by the plain SQL in `migrations/`: only what is missing, and never as an outage. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import postgres from 'postgres'

import { type CatalogTable, quotedTable, readCatalog } from './catalog.ts'
import type { Database } from './client.ts'
import { describeError, errorCode } from './errors.ts'
import { needsSibling, siblingOf } from './events-home.ts'
import { type FunctionSettings, planFunctions } from './functions.ts'
import { fill, type Words, wordsFor } from './migration-words.ts'
import type { Profile } from './profile.ts'
import { snakeCaseProfile } from './profiles.ts'
import { openTable, TableRejected } from './table.ts'

export interface MigrationOptions {
  /** A name stands for a table in our own spelling. */
  tables: readonly (string | Profile)[]
  maxAttempts: number
  /** The tables are the team's: a missing one is a mistake and not ours to make, and its defaults are its own. */
  isAttached?: boolean
  /** The settings that go into the SQL functions; without them no functions are installed. */
  functions?: Omit<FunctionSettings, 'maxAttempts'>
  /** Told in one line what happens, for the person waiting. */
  onProgress?: (line: string) => void
}

export interface MigrationStep {
  sql: string
  /** `create index concurrently` cannot stand in a transaction; everything else shares one per table. */
  isTransactional: boolean
  /** The table it changes: steps on one table share one short lock. */
  table: string
}

const FOLDER = join(import.meta.dirname, '..', '..', 'migrations')
/** Longest time a reader can be held up behind us. */
const LOCK_TIMEOUT_MS = 500
const TRIES = 30
/** Sent as a simple query: an open portal would keep its snapshot, and index builds wait for old snapshots. */
const TAKE_TURN = `select pg_try_advisory_xact_lock(hashtextextended('leasehold migrate', 0)) as taken`
/** How long we wait for another migration before we say that something holds its lock. */
const TURN_LIMIT_MS = 120_000

/** What is missing now, as SQL ready to run or to paste into a migration tool of your own. */
export async function planMigration(db: Database, options: MigrationOptions): Promise<MigrationStep[]> {
  const places = await findPlaces(db, options)
  const steps: MigrationStep[] = []
  for (const file of migrationFiles()) {
    for (const place of places) {
      for (const statement of splitStatements(file.text)) {
        const [guard, sql] = [fill(statement.guard, place.words, 'plain'), fill(statement.sql, place.words, 'sql')]
        if (guard === null || sql === null || steps.some((step) => step.sql === sql)) continue
        if (await isSatisfied(db, guard, place, options)) continue
        const table = statement.sql.includes('{table}') ? place.profile.table : (place.profile.events?.table ?? '')
        const broken = await brokenIndex(db, sql)
        if (broken) steps.push({ sql: `drop index concurrently if exists ${broken}`, table, isTransactional: false })
        steps.push({ sql, table, isTransactional: !/\bconcurrently\b/i.test(sql) })
      }
    }
  }
  return [...steps, ...(await functionSteps(db, places, options))]
}

/** For tables that are complete. */
async function functionSteps(
  db: Database,
  places: readonly Place[],
  options: MigrationOptions,
): Promise<MigrationStep[]> {
  if (!options.functions) return []
  const steps: MigrationStep[] = []
  for (const { profile } of places) {
    const table = await openTable(db, profile).catch((error: unknown) => {
      if (error instanceof TableRejected) return null
      throw error
    })
    if (!table) continue
    const statements = await planFunctions(db, table, { ...options.functions, maxAttempts: options.maxAttempts })
    steps.push(...statements.map((sql) => ({ sql, table: 'functions', isTransactional: true })))
  }
  return steps
}

/** One job table with its events table, as they are now. */
interface Place {
  profile: Profile
  words: Words
  jobs: CatalogTable | null
  events: CatalogTable | null
  sibling: CatalogTable | null
}

async function findPlaces(db: Database, { tables, maxAttempts, isAttached }: MigrationOptions): Promise<Place[]> {
  const places: Place[] = []
  for (const each of tables) {
    const profile = typeof each === 'string' ? snakeCaseProfile(each) : each
    const jobs = await readCatalog(db, profile.table)
    if (!jobs && isAttached) {
      throw new Error(
        `there is no table ${profile.table}: look at its name in LEASEHOLD_TABLES; no table of yours is made by us`,
      )
    }
    const events = profile.events && (await readCatalog(db, profile.events.table))
    const sibling = profile.events && (await readCatalog(db, siblingOf(profile.events.table)))
    places.push({ profile, words: {}, jobs, events, sibling })
  }
  for (const place of places) {
    const sharing = places.filter(({ profile }) => profile.events?.table === place.profile.events?.table)
    const idTypes = new Set(sharing.map(({ jobs, profile }) => jobs?.columns.get(profile.columns.id)?.type ?? 'uuid'))
    const eventJobIdType = idTypes.size === 1 ? ([...idTypes][0] ?? 'uuid') : 'text'
    place.words = wordsFor(place.profile, place.jobs, { maxAttempts, eventJobIdType })
  }
  return places
}

/** Runs what is missing. Any number of these at once is harmless: they take turns, and the later ones find nothing to do. */
export async function migrate(db: Database, url: string, options: MigrationOptions): Promise<MigrationStep[]> {
  const say = options.onProgress ?? (() => undefined)
  // One session waits for and holds the turn, the other one works; neither is used for anything else.
  const [turns, client] = [openSession(url), openSession(url)]
  try {
    // Under repeatable read the turn would keep a snapshot, and index builds wait for old snapshots.
    return await turns.begin('isolation level read committed', async (turn) => {
      await turn`set local idle_in_transaction_session_timeout = 0`
      await takeTurn(turn, say)
      const done: MigrationStep[] = []
      // Functions can only be made for a table that is complete: a second round may find more to do.
      for (let round = 1; round <= 2; round += 1) {
        const steps = await planMigration(db, options)
        for (const group of groupSteps(steps)) await applyWithRetries(db, client, group, say)
        done.push(...steps)
      }
      return done
    })
  } finally {
    await Promise.all([turns.end({ timeout: 2 }), client.end({ timeout: 2 })])
  }
}

function openSession(url: string): postgres.Sql {
  return postgres(url, {
    max: 1,
    prepare: false,
    onnotice: () => undefined,
    connection: { application_name: 'leasehold migrate' },
  })
}

/**
 * Polled, not waited for: a statement that waits holds a snapshot, and the index build of whoever has the turn would
 * wait for that snapshot to go away.
 */
async function takeTurn(turn: postgres.TransactionSql, say: (line: string) => void): Promise<void> {
  const deadline = performance.now() + TURN_LIMIT_MS
  let hasSaid = false
  while (performance.now() < deadline) {
    const [row] = await turn.unsafe<{ taken: boolean }[]>(TAKE_TURN).simple()
    if (row?.taken) return
    if (!hasSaid) say('another migration is running; waiting for it to end')
    hasSaid = true
    await sleep(200)
  }
  throw new Error(
    `another session has held the migration lock for ${TURN_LIMIT_MS / 1000} s; find it with: select * from pg_locks where locktype = 'advisory'`,
  )
}

/** Neighbouring steps on one table go in one transaction: one lock instead of twelve. */
function groupSteps(steps: readonly MigrationStep[]): MigrationStep[][] {
  const groups: MigrationStep[][] = []
  for (const step of steps) {
    const last = groups.at(-1)
    const joins = last?.[0]?.isTransactional && step.isTransactional && last[0].table === step.table
    if (joins && last) last.push(step)
    else groups.push([step])
  }
  return groups
}

/** A short lock_timeout and many tries: behind a long reader we step back, so that nobody queues behind us. */
async function applyWithRetries(
  db: Database,
  client: postgres.Sql,
  group: MigrationStep[],
  say: (line: string) => void,
): Promise<void> {
  const text = group[0]?.isTransactional
    ? `begin; set local lock_timeout = ${LOCK_TIMEOUT_MS}; ${group.map((step) => step.sql).join('; ')}; commit`
    : (group[0]?.sql ?? '')
  for (const step of group) say(step.sql.split('\n', 1)[0] ?? '')
  for (let tried = 1; ; tried += 1) {
    try {
      await client.unsafe(text).simple()
      return
    } catch (error) {
      await client
        .unsafe('rollback')
        .simple()
        .catch(() => undefined)
      if (!['55P03', '40P01', '23505', '42P07'].includes(errorCode(error)) || tried === TRIES) throw error
      say(`${group[0]?.table} is in use (${describeError(error)}); trying again`)
      await sleep(Math.min(200 * tried, 3000))
      const broken = group[0] ? await brokenIndex(db, group[0].sql) : null
      if (broken) await client.unsafe(`drop index concurrently if exists ${broken}`).simple()
    }
  }
}

/** `table jobs`, `column stage`, `default max_attempts = 3`, `index i`, `index on t (c)`, `events fit`: what stands behind `-- unless`. */
async function isSatisfied(db: Database, guard: string, place: Place, options: MigrationOptions): Promise<boolean> {
  const [kind, ...rest] = guard.split(' ')
  const subject = rest.join(' ')
  const { jobs, events, profile } = place
  if (kind === 'table') return subject === profile.table ? jobs !== null : events !== null
  // A column that is still to come brings its default along.
  if (kind === 'default') return options.isAttached || jobs === null || hasDefault(db, profile.table, subject, jobs)
  if (kind === 'column') return jobs?.columns.has(subject) ?? false
  if (kind === 'index') return hasIndex(events, jobs, subject)
  if (kind === 'events') return place.sibling !== null || !jobs || !events || !needsSibling(profile, jobs, events)
  throw new Error(`a migration has a guard nobody understands: unless ${guard}`)
}

async function hasDefault(db: Database, table: string, subject: string, catalog: CatalogTable): Promise<boolean> {
  const [column = '', value] = subject.split(' = ')
  if (!catalog.columns.has(column)) return true
  const [row] = await db.query(
    (sql) => sql<{ value: string | null }[]>`
      select pg_get_expr(d.adbin, d.adrelid) as value
      from pg_attribute a
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
      where a.attrelid = to_regclass(${quotedTable(table)}) and a.attname = ${column}`,
  )
  return row?.value === value
}

/** An index that a broken build left invalid counts as missing. */
function hasIndex(events: CatalogTable | null, jobs: CatalogTable | null, subject: string): boolean {
  const leading = /^on .* \((.*)\)$/.exec(subject)?.[1]
  const indexes = (leading === undefined ? jobs : events)?.indexes ?? []
  return indexes.some(
    ({ isValid, name, columns }) => isValid && (leading === undefined ? name === subject : columns[0] === leading),
  )
}

/** What an interrupted build left behind under the name we need; null when there is nothing to clear away. */
async function brokenIndex(db: Database, sql: string): Promise<string | null> {
  const [, quoted, table] = /^create index concurrently if not exists "((?:[^"]|"")+)" on (\S+|".*") \(/.exec(sql) ?? []
  const name = quoted?.replaceAll('""', '"')
  if (name === undefined || table === undefined) return null
  const [row] = await db.query(
    (run) => run<{ name: string }[]>`
      select c.oid::regclass::text as name
      from pg_index i
      join pg_class c on c.oid = i.indexrelid
      where i.indrelid = to_regclass(${table}) and c.relname = ${name}::name and not i.indisvalid`,
  )
  return row?.name ?? null
}

function migrationFiles(): { name: string; text: string }[] {
  return readdirSync(FOLDER)
    .filter((name) => /^\d{4}_\w+\.sql$/.test(name))
    .toSorted()
    .map((name) => ({ name, text: readFileSync(join(FOLDER, name), 'utf8') }))
}

/** Each statement stands under the comment that says when it is not needed. */
function splitStatements(text: string): { guard: string; sql: string }[] {
  return [...text.matchAll(/^-- unless (.+)\n([^;]+);/gm)].map(([, guard = '', sql = '']) => ({
    guard: guard.trim(),
    sql: sql.trim(),
  }))
}

/** Brings tables up to what we need, by the plain SQL in `migrations/`: only what is missing, and never as an outage. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import postgres from 'postgres'

import { type CatalogTable, quotedTable, readCatalog } from './catalog.ts'
import type { Database } from './client.ts'
import { describeError, errorCode } from './errors.ts'
import { quoteName } from './sql.ts'

export interface MigrationOptions {
  tables: readonly string[]
  eventsTable?: string
  maxAttempts: number
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
  const steps: MigrationStep[] = []
  const catalogs = new Map<string, CatalogTable | null>()
  const eventsTable = options.eventsTable ?? 'job_events'
  for (const table of [...options.tables, eventsTable]) catalogs.set(table, await readCatalog(db, table))
  for (const file of migrationFiles()) {
    const isForEvents = file.text.includes(':events')
    for (const table of isForEvents ? [eventsTable] : options.tables) {
      const words = placeholders(table, eventsTable, options, catalogs)
      for (const statement of splitStatements(file.text)) {
        const guard = fill(statement.guard, words)
        if (await isSatisfied(db, guard, table, catalogs.get(table) ?? null)) continue
        const sql = fill(statement.sql, words)
        const broken = catalogs.get(table) ? await brokenIndex(db, table, sql) : null
        if (broken) steps.push({ sql: `drop index concurrently if exists ${broken}`, table, isTransactional: false })
        steps.push({ sql, table, isTransactional: !/\bconcurrently\b/i.test(sql) })
      }
    }
  }
  return steps
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
      const steps = await planMigration(db, options)
      for (const group of groupSteps(steps)) await applyWithRetries(db, client, group, say)
      return steps
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
      const broken = group[0] ? await brokenIndex(db, group[0].table, group[0].sql) : null
      if (broken) await client.unsafe(`drop index concurrently if exists ${broken}`).simple()
    }
  }
}

/** `-- unless table jobs`, `-- unless column stage`, `-- unless default max_attempts = 3`, `-- unless index i`, `-- unless index on t (c)`. */
async function isSatisfied(db: Database, guard: string, table: string, catalog: CatalogTable | null): Promise<boolean> {
  const [kind, ...rest] = guard.split(' ')
  const subject = rest.join(' ')
  if (kind === 'table') return catalog !== null
  // A column that is still to come brings its default along.
  if (kind === 'default') return catalog === null || hasDefault(db, table, subject, catalog)
  if (catalog === null) return false
  if (kind === 'column') return catalog.columns.has(subject)
  if (kind === 'index') return hasIndex(db, table, subject)
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
async function hasIndex(db: Database, table: string, subject: string): Promise<boolean> {
  const column = /^on .* \((.*)\)$/.exec(subject)?.[1]
  const [row] = await db.query(
    (sql) => sql<{ found: boolean }[]>`
      select exists (
        select 1
        from pg_index i
        join pg_class c on c.oid = i.indexrelid
        left join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
        where i.indrelid = to_regclass(${quotedTable(table)})
          and i.indisvalid
          and (c.relname = ${subject}::name or a.attname = ${column ?? ''})) as found`,
  )
  return row?.found ?? false
}

/** What an interrupted build left behind under the name we need; null when there is nothing to clear away. */
async function brokenIndex(db: Database, table: string, sql: string): Promise<string | null> {
  const name = /create index concurrently if not exists "((?:[^"]|"")+)"/.exec(sql)?.[1]?.replaceAll('""', '"')
  if (name === undefined) return null
  const [row] = await db.query(
    (run) => run<{ name: string }[]>`
      select c.oid::regclass::text as name
      from pg_index i
      join pg_class c on c.oid = i.indexrelid
      where i.indrelid = to_regclass(${quotedTable(table)}) and c.relname = ${name}::name and not i.indisvalid`,
  )
  return row?.name ?? null
}

function placeholders(
  table: string,
  eventsTable: string,
  options: MigrationOptions,
  catalogs: Map<string, CatalogTable | null>,
): Record<string, string> {
  const name = shortened(table.split('.').at(-1) ?? table)
  const catalog = catalogs.get(table)
  const idTypes = new Set(options.tables.map((each) => catalogs.get(each)?.columns.get('id')?.type ?? 'uuid'))
  const createdAt = catalog ? catalog.columns.get('created_at')?.type : 'timestamp with time zone'
  return {
    table: quotedTable(table),
    name: name.replaceAll('"', '""'),
    events: quotedTable(eventsTable),
    events_index: quoteName(`idx_${eventsTable.split('.').at(-1)}_job_id`),
    event_job_id: idTypes.size === 1 ? ([...idTypes][0] ?? 'uuid') : 'text',
    max_attempts: String(options.maxAttempts),
    due_at: createdAt?.endsWith('with time zone')
      ? 'coalesce(next_earliest_run_at, created_at)'
      : 'next_earliest_run_at',
  }
}

function fill(text: string, words: Record<string, string>): string {
  return text.replaceAll(
    /(idx_)?:(events_index|events|event_job_id|table|name|max_attempts|due_at)(\w*)/g,
    (_, prefix = '', key: string, suffix: string) => {
      const word = words[key] ?? ''
      return prefix ? `${prefix}${word}${suffix}` : `${word}${suffix}`
    },
  )
}

/** Index names are cut at 63 bytes; two that differ only behind the cut would be one. */
function shortened(name: string): string {
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return Buffer.byteLength(name) > 40 ? `${name.slice(0, 30)}_${hash}` : name
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

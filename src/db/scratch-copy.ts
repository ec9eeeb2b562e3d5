/**
 * A copy of a job table's shape in a schema of its own, for `leasehold prove`. Of the live table only the catalog is
 * read; its triggers and foreign keys stay behind, and nothing in the copy draws from a sequence of it.
 */
import { DEFAULT_EVENT_NAMES } from '../job/event.ts'
import { quotedTable } from './catalog.ts'
import type { Database } from './client.ts'
import type { Profile } from './profile.ts'
import { fillerFor } from './scratch-filler.ts'
import { list, quoteName, raw, sql } from './sql.ts'
import { type JobTable, openTable } from './table.ts'

export interface Scratch {
  table: JobTable
  /** The columns without which no row goes into the copy, for the n-th one. */
  rowOf: (n: number) => Record<string, unknown>
}

const NAME = /^leasehold_prove_[0-9a-f]{8}$/
const EVENTS = 'leasehold_events'

/** No way to make the copy; says what would help. */
export class NoScratch extends Error {
  override readonly name = 'NoScratch'
}

export async function requireCreate(db: Database): Promise<void> {
  const [found] = await db.query(
    (run) => run<{ can: boolean; database: string; role: string }[]>`
      select has_database_privilege(current_database(), 'create') as can, current_database() as database, current_user as role`,
  )
  if (found === undefined || found.can) return
  const grant = `grant create on database ${quoteName(found.database)} to ${quoteName(found.role)}`
  throw new NoScratch(`not allowed to make a schema of our own; an owner can allow it with:\n  ${grant};`)
}

/** Schemas that earlier proofs had to leave behind, or that one is at work in right now. */
export async function findScratch(db: Database): Promise<string[]> {
  const rows = await db.query(
    (run) =>
      run<{ name: string }[]>`select nspname::text as name from pg_namespace where nspname ~ ${NAME.source} order by 1`,
  )
  return rows.map(({ name }) => name)
}

export function dropStatement(schema: string): string {
  return `drop schema if exists ${quoteName(schema)} cascade`
}

/** The caller drops the schema, also after an error. */
export async function makeScratch(db: Database, live: Profile, schema: string): Promise<Scratch> {
  const profile = profileOfCopy(live, schema)
  const [copy, events] = [quotedTable(profile.table), quotedTable(`${schema}.${EVENTS}`)]
  const { jobId = 'job_id', data = 'data' } = profile.events ?? {}
  await execute(db, `create schema ${quoteName(schema)}`)
  await execute(db, `create table ${copy} (like ${quotedTable(live.table)} including all excluding constraints)`)
  await execute(
    db,
    `create table ${events} (id bigint generated always as identity primary key, ${quoteName(jobId)} text not null, ${quoteName(data)} jsonb not null)`,
  )
  const columns = await readCopy(db, profile.table)
  for (const check of await readChecks(db, live, columns)) await execute(db, `alter table ${copy} add ${check}`)
  const needed = await loosen(db, profile, columns)
  return {
    table: await openTable(db, profile),
    rowOf: (n) => ({
      ...Object.fromEntries(needed.map(({ name, type, words }) => [name, fillerFor({ name, type, words }, n)])),
      ...(profile.columns.maxAttempts === null ? {} : { [profile.columns.maxAttempts]: ATTEMPTS }),
    }),
  }
}

/** So many that a job of the proof never runs out of them. */
const ATTEMPTS = 5

/** The team's own but for its place and its pace: a lease of the proof lasts as long as the proof says, in every stage. */
function profileOfCopy(profile: Profile, schema: string): Profile {
  const { events, table, policy } = profile
  return {
    ...profile,
    table: `${schema}.${table.split('.').at(-1)}`,
    stage: null,
    slaFactors: {},
    policy: { ...policy, heartbeatSec: null, staleAfterSec: null, noHeartbeatSec: null },
    events: {
      table: `${schema}.${EVENTS}`,
      jobId: events?.jobId ?? 'job_id',
      data: events?.data ?? 'data',
      type: null,
      at: null,
      values: {},
      names: events?.names ?? DEFAULT_EVENT_NAMES,
    },
  }
}

interface CopiedColumn {
  name: string
  type: string
  words: string[] | null
  isNotNull: boolean
  isKey: boolean
  /** Its value comes by itself: from an identity, or from what it is generated from. */
  isGenerated: boolean
  hasDefault: boolean
  /** Its default draws from a sequence or calls a function of the team's, which may write who knows what. */
  reachesOut: boolean
}

/**
 * Takes from the copy what would reach out of it, and what asks for values nobody here can know. Answers the columns
 * that need one all the same, because they are part of the key.
 */
async function loosen(db: Database, { table, columns }: Profile, found: CopiedColumn[]): Promise<CopiedColumn[]> {
  const needed: CopiedColumn[] = []
  for (const column of found) {
    const { name, isNotNull, isKey, isGenerated, hasDefault, reachesOut } = column
    const alter = `alter table ${quotedTable(table)} alter column ${quoteName(name)}`
    if (reachesOut) await execute(db, `${alter} drop default`)
    if (isGenerated || (hasDefault && !reachesOut) || name === columns.status) continue
    if (isKey || name === columns.id) needed.push(column)
    else if (isNotNull) await execute(db, `${alter} drop not null`)
  }
  return needed
}

/**
 * Only checks of what workers and reaper write are part of the proof. The rest asks for values that only the team's own
 * code knows, or calls a function of the team's.
 */
async function readChecks(
  db: Database,
  { table, columns, createdAt, updatedAt }: Profile,
  found: CopiedColumn[],
): Promise<string[]> {
  const { id, stage, expectedDurationMs, ...written } = columns
  const ours = new Set([...Object.values(written), updatedAt])
  // Whoever puts a job in gives these, unless they come by themselves.
  const given = new Set([id, stage, expectedDurationMs, createdAt])
  const comesByItself = ({ hasDefault, reachesOut, isGenerated }: CopiedColumn): boolean =>
    isGenerated || (hasDefault && !reachesOut)
  const known = found.filter((each) => ours.has(each.name) || (given.has(each.name) && comesByItself(each)))
  const rows = await db.query(
    (run) => run<{ definition: string }[]>`
      select format('constraint %I %s', c.conname, pg_get_constraintdef(c.oid)) as definition
      from pg_constraint c
      where c.conrelid = to_regclass(${quotedTable(table)}) and c.contype = 'c'
        and c.conkey <@ array(
          select a.attnum from pg_attribute a
          where a.attrelid = c.conrelid and a.attname = any(${list(known.map(({ name }) => name))}::text[])
        )
        and not exists (select from pg_depend p where p.classid = 'pg_constraint'::regclass and p.objid = c.oid and p.refclassid = 'pg_proc'::regclass)
      order by c.conname`,
  )
  return rows.map(({ definition }) => definition)
}

async function readCopy(db: Database, table: string): Promise<CopiedColumn[]> {
  return db.query(
    (run) => run<CopiedColumn[]>`
      select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as "isNotNull",
        (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e where e.enumtypid = a.atttypid) as words,
        exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary and a.attnum = any(i.indkey)) as "isKey",
        a.attidentity <> '' or a.attgenerated <> '' as "isGenerated",
        d.oid is not null as "hasDefault",
        coalesce(
          pg_get_expr(d.adbin, d.adrelid) ~* 'nextval|setval'
            or exists (select from pg_depend p where p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refclassid = 'pg_proc'::regclass),
          false) as "reachesOut"
      from pg_attribute a
      left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum and a.attgenerated = ''
      where a.attrelid = to_regclass(${quotedTable(table)}) and a.attnum > 0 and not a.attisdropped
      order by a.attnum`,
  )
}

export interface Moment {
  type: string
  attempt: number | null
  atMs: number
}

/** What was told of a job of the copy, by the database's clock. */
export async function readMoments(db: Database, { table: { profile } }: Scratch, id: string): Promise<Moment[]> {
  if (!profile.events) return []
  const { table, jobId, data } = profile.events
  const told = sql`e.${raw(quoteName(data))}`
  const rows = await db.query(
    (run) => run<Moment[]>`
      select ${told} ->> 'type' as type, (${told} -> 'details' ->> 'attempt')::float8 as attempt,
        (extract(epoch from (${told} ->> 'at')::timestamptz) * 1000)::float8 as "atMs"
      from ${raw(quotedTable(table))} as e
      where e.${raw(quoteName(jobId))} = ${id}
      order by e.id`,
  )
  return [...rows]
}

export interface HeldJob {
  holder: string
  leaseEndsAtMs: number
}

/** Who has it, and until when; null while nobody does. */
export async function readHeld(db: Database, { table: { dialect: d } }: Scratch, id: string): Promise<HeldJob | null> {
  const [row] = await db.query(
    (run) => run<HeldJob[]>`
      select ${d.read.holder}::text as holder, (extract(epoch from ${d.read.leaseExpiresAt}) * 1000)::float8 as "leaseEndsAtMs"
      from ${d.table} as j
      where ${d.read.id}::text = ${id} and ${d.read.status} = ${d.status.processing}`,
  )
  return row ?? null
}

export async function readClockMs(db: Database): Promise<number> {
  const [row] = await db.query(
    (run) => run<{ ms: number }[]>`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`,
  )
  return row?.ms ?? 0
}

async function execute(db: Database, statement: string): Promise<void> {
  await db.query((run) => run.unsafe(statement))
}

export async function dropScratch(db: Database, schema: string): Promise<void> {
  await execute(db, dropStatement(schema))
}

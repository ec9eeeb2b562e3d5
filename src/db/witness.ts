/**
 * An independent witness for the demo: triggers that write down every change of a job and every event, and under which
 * name the writer had come. The score is taken from this record, never from counters of our own.
 */
import type { Database } from './client.ts'
import { quoteLiteral, quoteName, sql } from './sql.ts'

/** One row that was written: a job or an event, before and after. */
export interface Sighting {
  seq: number
  atMs: number
  tx: string
  /** The role that wrote it: every program of the demo comes under a name of its own. */
  writer: string
  source: 'job' | 'event'
  op: 'INSERT' | 'UPDATE' | 'DELETE'
  /** The job it is about. */
  id: string
  old: Record<string, unknown> | null
  new: Record<string, unknown> | null
}

const STATEMENTS = [
  `create table witness (
    seq bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    tx bigint not null default txid_current(),
    writer text not null,
    source text not null,
    op text not null,
    id text not null,
    old jsonb,
    new jsonb
  )`,
  'create index on witness (tx)',
  // With the rights of its owner, so that nobody who is watched could write here; session_user is still who really came.
  `create function witness_change() returns trigger language plpgsql security definer as $$
  begin
    insert into witness (writer, source, op, id, old, new)
    values (session_user, tg_argv[0], tg_op, coalesce(to_jsonb(new) ->> tg_argv[1], to_jsonb(old) ->> tg_argv[1]), to_jsonb(old), to_jsonb(new));
    return null;
  end $$`,
  `create trigger witness after insert or update or delete on jobs for each row execute function witness_change('job', 'id')`,
  `create trigger witness after insert or update or delete on job_events for each row execute function witness_change('event', 'job_id')`,
]

/** On the tables `jobs` and `job_events`, which must be there. */
export async function installWitness(db: Database): Promise<void> {
  for (const statement of STATEMENTS) await db.query((run) => run.unsafe(statement))
}

/** A role of this name with all that a worker or a reaper needs; answers the address under which it comes. */
export async function admit(db: Database, url: string, name: string): Promise<string> {
  const address = new URL(url)
  const role = quoteName(name)
  const password = quoteLiteral(decodeURIComponent(address.password))
  await db.query((run) => run.unsafe(`create role ${role} login password ${password}`))
  await db.query((run) => run.unsafe(`grant select, insert, update on jobs, job_events to ${role}`))
  address.username = name
  return address.toString()
}

const SIGHTING = sql`w.seq::float8 as seq, (extract(epoch from w.at) * 1000)::float8 as "atMs", w.tx::text as tx, w.writer, w.source,
  w.op, w.id, w.old, w.new`

/** All of it. Complete once everybody who writes has ended. */
export async function readRecord(db: Database): Promise<Sighting[]> {
  return [...(await db.query((run) => run<Sighting[]>`select ${SIGHTING} from witness as w order by w.seq`))]
}

/**
 * What was written since the last reading, each row once, while writers are at it. Rows are numbered when they are
 * written and seen when they are committed: read are only those of transactions that all earlier ones have caught up with.
 */
export async function readNews(db: Database, since: string): Promise<{ sightings: Sighting[]; next: string }> {
  const rows = await db.query(
    (run) => run<(Omit<Sighting, 'seq'> & { seq: number | null; next: string })[]>`
      with settled as (select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as before_tx)
      select settled.before_tx::text as next, ${SIGHTING}
      from settled
      left join witness as w on w.tx >= ${since}::bigint and w.tx < settled.before_tx
      order by w.seq`,
  )
  const sightings = rows.filter((row): row is Sighting & { next: string } => row.seq !== null)
  return { sightings, next: rows[0]?.next ?? since }
}

/** How every job stands in the table itself. */
export async function readStandings(db: Database): Promise<{ id: string; status: string }[]> {
  return [...(await db.query((run) => run<{ id: string; status: string }[]>`select id::text as id, status from jobs`))]
}

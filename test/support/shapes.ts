/** Tables as teams have them before we come: other id types, other status types, other names. Every database suite runs on each. */
import { migrate } from '../../src/db/migrate.ts'
import type { Profile } from '../../src/db/profile.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import { freshDatabase, type TestDatabase } from './database.ts'
import { watchTable } from './witness.ts'

export interface Shape {
  title: string
  table: string
  events: string
  /** What the team's own migrations made; empty for the tables we make ourselves. */
  ddl: string
}

export const SHAPES: Shape[] = [
  { title: 'our own tables (uuid id, text status)', table: 'jobs', events: 'job_events', ddl: '' },
  {
    title: 'bigint id, enum status, own schema',
    table: 'media.jobs',
    events: 'media.job_events',
    ddl: `
      create schema media;
      create type media.job_status as enum ('queued', 'processing', 'done', 'failed');
      create table media.jobs (id bigint generated always as identity (start with 9007199254740993) primary key,
        status media.job_status not null default 'queued', input text, created_at timestamptz default now());`,
  },
  {
    title: 'text id, varchar status, mixed-case names, full status index',
    table: 'Clips.ClipJobs',
    events: 'Clips.ClipEvents',
    ddl: `
      create schema "Clips";
      create table "Clips"."ClipJobs" (id text primary key default 'clip:' || gen_random_uuid(), status varchar(20) not null default 'queued',
        fail_code varchar(12), last_heartbeat_at timestamptz, attempt_count int not null default 0, max_attempts int);
      create index on "Clips"."ClipJobs" (status, last_heartbeat_at);
      create table "Clips"."ClipEvents" (id bigserial primary key, job_id text not null references "Clips"."ClipJobs", data jsonb);`,
  },
]

export interface ShapedDatabase extends TestDatabase {
  profile: Profile
  /** The table's name, quoted for SQL. */
  quoted: string
}

/** A fresh database with the shape's tables, brought up by our own migration and watched by the witness. */
export async function shapedDatabase(shape: Shape): Promise<ShapedDatabase> {
  const database = await freshDatabase()
  const { sql, db, url } = database
  const quote = (name: string): string =>
    name
      .split('.')
      .map((part) => `"${part}"`)
      .join('.')
  const base = snakeCaseProfile(shape.table)
  const profile: Profile = { ...base, events: base.events && { ...base.events, table: shape.events } }
  if (shape.ddl) {
    await sql.unsafe(shape.ddl).simple()
    await migrate(db, url, { tables: [profile], maxAttempts: 3 })
    await sql.unsafe(watchTable(quote(shape.table)))
    await sql.unsafe(
      `create trigger witness after insert on ${quote(shape.events)} for each row execute function witness_change('job_id')`,
    )
    await sql
      .unsafe(`drop table job_events; create view job_events as select id, job_id, data from ${quote(shape.events)}`)
      .simple()
  }
  return { ...database, profile, quoted: quote(shape.table) }
}

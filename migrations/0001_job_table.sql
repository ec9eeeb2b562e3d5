-- A job table for teams that have none. An existing one is left as it is, and with LEASEHOLD_TABLES none is made.
-- Words in braces are the profile's: {table} is each table in turn, {holder} its column for the holder, and so on. A
-- statement that names a column the profile sets to null is left out.

-- unless table {table}
create table if not exists {table} (
  {id} uuid primary key default gen_random_uuid(),
  {status} text not null default {queued},
  payload jsonb not null default '{}',
  {createdAt} timestamptz not null default now(),
  {updatedAt} timestamptz not null default now()
);

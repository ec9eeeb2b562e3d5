-- A job table for teams that have none. An existing one is left as it is.
-- :table is each of REAPER_TABLES in turn.

-- unless table :table
create table if not exists :table (
  id uuid primary key default gen_random_uuid(),
  status text not null default 'queued',
  payload jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);

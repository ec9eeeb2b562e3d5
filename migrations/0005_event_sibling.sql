-- Where the team's events table cannot take the events of a job table (a foreign key to another one, a NOT NULL column we
-- know nothing for), they stand in a table of our own beside it, and one view shows both.

-- unless events fit
create table if not exists {sibling} (
  id bigint generated always as identity primary key,
  {event_job} text not null,
  {event_data} jsonb not null
);

-- unless events fit
create index concurrently if not exists {sibling_index} on {sibling} ({event_job});

-- unless events fit
create or replace view {events_all} as
  select {event_job}::text as {event_job}, {event_data}::jsonb as {event_data} from {events}
  union all
  select {event_job}, {event_data} from {sibling};

-- One row per change of a job. {event_job_id} is the type of the job tables' id, or text where they differ.

-- unless table {events}
create table if not exists {events} (
  id bigint generated always as identity primary key,
  {event_job} {event_job_id} not null,
  {event_data} jsonb not null
);

-- unless index on {events} ({event_job})
create index concurrently if not exists {events_index} on {events} ({event_job});

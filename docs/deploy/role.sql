-- The least a reaper, a worker, the dashboard and the leasehold command need. Plain SQL: run it in the database of your
-- jobs, as the owner of the tables, with any tool. It can be run again.
--
-- To be adapted, where they differ: the role leasehold_service and its password; the tables jobs, asr_jobs and
-- job_events; the columns, which are those of the profile (`bun run cli doctor` names each one that is missing).
-- Then DATABASE_URL=postgres://leasehold_service:…@host:5432/database
--
-- Not for `migrate` and `attach --apply`, which change tables, nor for `prove`, which makes a scratch schema: run those as
-- the owner.

do $$
begin
  if not exists (select from pg_roles where rolname = 'leasehold_service') then
    create role leasehold_service login password 'change me';
  end if;
end
$$;
alter role leasehold_service
  nosuperuser nocreatedb nocreaterole noreplication nobypassrls connection limit 100;

grant usage on schema public to leasehold_service;

-- Jobs: read and moved; never inserted, deleted or emptied. What a job is about (payload) is not ours to write.
grant select on jobs, asr_jobs to leasehold_service;
grant update (
  status, locked_by, lease_expires_at, last_heartbeat_at, processing_started_at, attempt_count, max_attempts, stage,
  next_earliest_run_at, fail_code, fail_reason, expected_duration_ms, progress, updated_at
) on jobs, asr_jobs to leasehold_service;

-- Events: added to and read; never changed, so that nobody who has this role can rewrite what happened.
grant select, insert on job_events to leasehold_service;

-- Only where they apply:
-- An id made by a sequence (serial) instead of an identity column:
--   grant usage on sequence job_events_id_seq to leasehold_service;
-- Events that stand beside the team's own table, and the view of both:
--   grant select, insert on job_events_leasehold to leasehold_service;
--   grant select on job_events_all to leasehold_service;
-- The application puts jobs into the queue with enqueueJob under this role:
--   grant insert on jobs, asr_jobs to leasehold_service;
-- Workers in other languages under this role (docs/other-languages.md):
--   grant usage on schema leasehold to leasehold_service;
-- QUEUE_PROVIDER=pgboss, once its schema is there:
--   grant usage on schema pgboss to leasehold_service;
--   grant select, insert, update, delete on all tables in schema pgboss to leasehold_service;
--   grant execute on all functions in schema pgboss to leasehold_service;
-- PostgreSQL 14, where everybody may make tables in the schema public unless told otherwise:
--   revoke create on schema public from public;

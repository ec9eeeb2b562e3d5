-- What a job table needs for leases. Only nullable columns and constant defaults: no row is rewritten, and workers that
-- do not know the columns go on as before.

-- unless column locked_by
alter table :table add column if not exists locked_by text;

-- unless column lease_expires_at
alter table :table add column if not exists lease_expires_at timestamptz;

-- unless column last_heartbeat_at
alter table :table add column if not exists last_heartbeat_at timestamptz;

-- unless column attempt_count
alter table :table add column if not exists attempt_count integer not null default 0;

-- unless column max_attempts
alter table :table add column if not exists max_attempts integer not null default :max_attempts;

-- unless column stage
alter table :table add column if not exists stage text;

-- unless column next_earliest_run_at
alter table :table add column if not exists next_earliest_run_at timestamptz;

-- unless column fail_code
alter table :table add column if not exists fail_code text;

-- unless column fail_reason
alter table :table add column if not exists fail_reason text;

-- unless column expected_duration_ms
alter table :table add column if not exists expected_duration_ms integer;

-- unless column processing_started_at
alter table :table add column if not exists processing_started_at timestamptz;

-- unless column progress
alter table :table add column if not exists progress integer not null default 0;

-- The default follows JOB_MAX_ATTEMPTS; rows that are there keep theirs.
-- unless default max_attempts = :max_attempts
alter table :table alter column max_attempts set default :max_attempts;

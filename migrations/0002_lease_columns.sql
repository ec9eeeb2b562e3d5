-- What a job table needs for leases. Only nullable columns and constant defaults: no row is rewritten, and workers that
-- do not know the columns go on as before.

-- unless column {holder}
alter table {table} add column if not exists {holder} text;

-- unless column {leaseExpiresAt}
alter table {table} add column if not exists {leaseExpiresAt} timestamptz;

-- unless column {heartbeatAt}
alter table {table} add column if not exists {heartbeatAt} timestamptz;

-- unless column {attempts}
alter table {table} add column if not exists {attempts} integer not null default 0;

-- unless column {maxAttempts}
alter table {table} add column if not exists {maxAttempts} integer not null default {max_attempts};

-- unless column {stage}
alter table {table} add column if not exists {stage} text;

-- unless column {nextRunAt}
alter table {table} add column if not exists {nextRunAt} timestamptz;

-- unless column {failCode}
alter table {table} add column if not exists {failCode} text;

-- unless column {failReason}
alter table {table} add column if not exists {failReason} text;

-- unless column {expectedDurationMs}
alter table {table} add column if not exists {expectedDurationMs} integer;

-- unless column {startedAt}
alter table {table} add column if not exists {startedAt} timestamptz;

-- unless column {finishedAt}
alter table {table} add column if not exists {finishedAt} timestamptz;

-- unless column {progress}
alter table {table} add column if not exists {progress} integer not null default 0;

-- The default follows JOB_MAX_ATTEMPTS; rows that are there keep theirs. A table named in LEASEHOLD_TABLES keeps its own.
-- unless default {maxAttempts} = {max_attempts}
alter table {table} alter column {maxAttempts} set default {max_attempts};

-- Partial indexes: a finished job costs them nothing. Built beside running work, one statement each.

-- What is held, by the end of its lease: the reaper's scan.
-- unless index idx_{name}_status_lease
create index concurrently if not exists "idx_{name}_status_lease" on {table} ({status}, {scanned}) where {status} = {processing};

-- What waits, by the time it is due: claims.
-- unless index idx_{name}_queued_due
create index concurrently if not exists "idx_{name}_queued_due" on {table} ({due_at}) where {status} = {queued};

-- What failed, by code: the gauges and the list of dead letters.
-- unless index idx_{name}_failed
create index concurrently if not exists "idx_{name}_failed" on {table} ({failed_by}) where {status} = {failed};

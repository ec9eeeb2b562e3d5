/** The built-in spellings, and the way from the few lines a team writes to a whole profile. */
import { DEFAULT_EVENT_NAMES } from '../job/event.ts'
import type { Profile } from './profile.ts'

/** The spelling of the `jobs` and `asr_jobs` tables. */
export function snakeCaseProfile(table: string): Profile {
  return {
    table,
    columns: {
      id: 'id',
      status: 'status',
      holder: 'locked_by',
      leaseExpiresAt: 'lease_expires_at',
      heartbeatAt: 'last_heartbeat_at',
      startedAt: 'processing_started_at',
      attempts: 'attempt_count',
      maxAttempts: 'max_attempts',
      stage: 'stage',
      nextRunAt: 'next_earliest_run_at',
      failCode: 'fail_code',
      failReason: 'fail_reason',
      progress: 'progress',
      expectedDurationMs: 'expected_duration_ms',
      finishedAt: null,
    },
    stage: null,
    slaFactors: {},
    otherTimestamps: ['started_at', 'updated_at', 'created_at'],
    updatedAt: 'updated_at',
    createdAt: 'created_at',
    statuses: { queued: 'queued', processing: 'processing', done: 'done', failed: 'failed' },
    events: {
      table: 'job_events',
      jobId: 'job_id',
      data: 'data',
      type: 'type',
      at: 'ts',
      values: {},
      names: DEFAULT_EVENT_NAMES,
    },
    policy: {
      onExpiry: 'requeue',
      countAttempts: 'claim',
      heartbeatSec: null,
      staleAfterSec: null,
      noHeartbeatSec: null,
      queuedOrphans: null,
      queuedOrphanSec: null,
      orphanReason: null,
      undispatchedReason: null,
    },
  }
}

/** The same in camelCase, as an ORM that writes JavaScript names into the database spells it. */
export function camelCaseProfile(table: string): Profile {
  const base = snakeCaseProfile(table)
  return {
    ...base,
    columns: {
      id: 'id',
      status: 'status',
      holder: 'lockedBy',
      leaseExpiresAt: 'leaseExpiresAt',
      heartbeatAt: 'lastHeartbeatAt',
      startedAt: 'processingStartedAt',
      attempts: 'attemptCount',
      maxAttempts: 'maxAttempts',
      stage: 'stage',
      nextRunAt: 'nextEarliestRunAt',
      failCode: 'failCode',
      failReason: 'failReason',
      progress: 'progress',
      expectedDurationMs: 'expectedDurationMs',
      finishedAt: null,
    },
    otherTimestamps: ['startedAt', 'updatedAt', 'createdAt'],
    updatedAt: 'updatedAt',
    createdAt: 'createdAt',
    events: base.events && { ...base.events, jobId: 'jobId' },
  }
}

/**
 * A table whose own workers only beat (or do not even that), and whose orphans fail instead of running again. Lease,
 * holder and attempts are there for workers that take leases; a team that has none may set them to null.
 */
export function orphanProfile(table: string): Profile {
  const base = snakeCaseProfile(table)
  return {
    ...base,
    columns: {
      ...base.columns,
      startedAt: 'started_at',
      maxAttempts: null,
      stage: null,
      failCode: null,
      failReason: 'error_message',
      progress: null,
      expectedDurationMs: null,
      finishedAt: 'completed_at',
    },
    otherTimestamps: ['updated_at', 'created_at'],
    statuses: { queued: 'PENDING', processing: 'RUNNING', done: 'COMPLETED', failed: 'FAILED' },
    policy: {
      ...base.policy,
      onExpiry: 'fail',
      heartbeatSec: 30,
      staleAfterSec: 120,
      noHeartbeatSec: 120,
      orphanReason: 'orphan: job RUNNING sem heartbeat; worker provavelmente morreu',
      undispatchedReason: 'orphan: job PENDING never dispatched',
    },
  }
}

export const BUILT_IN_PROFILES = {
  snake_case: snakeCaseProfile,
  camelCase: camelCaseProfile,
  orphan: orphanProfile,
} as const satisfies Record<string, (table: string) => Profile>

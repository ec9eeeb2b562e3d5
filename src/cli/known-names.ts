/** What teams call things: columns and status words, most telling first, compared without case and separators. */
import { type ColumnKey, profileSchema } from '../db/profile.ts'
import type { Status } from '../job/status.ts'

export interface KnownColumn {
  /** These can hardly mean anything else. */
  names: string[]
  /** These may mean something else; taken, but only as likely. */
  vague?: string[]
  fits: RegExp
  wanted: string
}

const TIMESTAMP = { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' }
const WHOLE = { fits: /^(smallint|integer|bigint)$/, wanted: 'integer' }
const TEXT = { fits: /^(text|character varying.*)$/, wanted: 'text' }

/** In the order in which columns are given away: what is most particular chooses first. */
export const KNOWN_COLUMNS = {
  leaseExpiresAt: {
    names: ['lease_expires_at', 'lease_until', 'lease_expiry', 'lease_end', 'locked_until', 'lock_expires_at'],
    vague: ['visible_until', 'invisible_until', 'visibility_timeout_at', 'reserved_until', 'expires_at'],
    ...TIMESTAMP,
  },
  heartbeatAt: {
    names: ['last_heartbeat_at', 'heartbeat_at', 'last_heartbeat', 'heartbeat', 'last_ping_at', 'last_beat_at'],
    vague: ['pinged_at', 'last_seen_at', 'last_alive_at', 'alive_at', 'touched_at'],
    ...TIMESTAMP,
  },
  // A name cut off by its column would break the fence, so a short one does not do.
  holder: {
    names: ['locked_by', 'lease_holder', 'holder', 'claimed_by', 'leased_by', 'lock_owner'],
    vague: ['worker_id', 'worker', 'worker_name', 'reserved_by', 'taken_by', 'processed_by'],
    fits: /^(text|character varying(\((6[4-9]|[7-9]\d|\d{3,})\))?)$/,
    wanted: 'text, or varchar of at least 64',
  },
  maxAttempts: {
    names: ['max_attempts', 'attempts_max', 'max_tries', 'attempt_limit'],
    vague: ['max_retries', 'retry_limit', 'retries_max', 'max_retry_count'],
    ...WHOLE,
  },
  attempts: {
    names: ['attempt_count', 'attempts', 'attempt', 'tries', 'try_count', 'attempts_made', 'num_attempts'],
    vague: ['retry_count', 'retries', 'run_count', 'failures_count', 'num_retries'],
    ...WHOLE,
  },
  startedAt: {
    names: ['processing_started_at', 'started_at', 'start_time', 'run_started_at', 'claimed_at', 'locked_at'],
    vague: ['picked_at', 'reserved_at', 'attempted_at', 'started', 'processing_at', 'running_since'],
    ...TIMESTAMP,
  },
  finishedAt: {
    names: ['finished_at', 'completed_at', 'done_at', 'ended_at', 'processed_at'],
    vague: ['finish_time', 'end_time', 'completed_on', 'finished', 'completed'],
    ...TIMESTAMP,
  },
  nextRunAt: {
    names: ['next_earliest_run_at', 'next_run_at', 'run_at', 'next_attempt_at', 'retry_at', 'next_retry_at'],
    vague: ['scheduled_at', 'available_at', 'scheduled_for', 'not_before', 'run_after', 'due_at', 'visible_at'],
    ...TIMESTAMP,
  },
  failCode: {
    names: ['fail_code', 'error_code', 'failure_code', 'err_code', 'last_error_code'],
    ...TEXT,
  },
  failReason: {
    names: [
      'fail_reason',
      'failure_reason',
      'failed_reason',
      'error_message',
      'last_error',
      'error_text',
      'last_error_message',
    ],
    vague: ['error', 'err', 'error_msg', 'failure', 'error_details', 'reason'],
    ...TEXT,
  },
  stage: {
    names: ['stage', 'step', 'job_stage', 'phase'],
    vague: ['kind', 'type', 'job_type', 'job_kind', 'queue', 'queue_name', 'task_type', 'task'],
    ...TEXT,
  },
  progress: {
    names: ['progress', 'progress_percent', 'percent', 'percent_complete', 'progress_pct', 'pct'],
    vague: ['percentage', 'completion'],
    fits: /^(smallint|integer|bigint|real|double precision|numeric.*)$/,
    wanted: 'a number',
  },
  expectedDurationMs: {
    names: ['expected_duration_ms', 'estimated_duration_ms', 'expected_ms', 'estimate_ms'],
    ...WHOLE,
  },
} as const satisfies Partial<Record<ColumnKey, KnownColumn>>

export const STATUS_COLUMNS = ['status', 'state', 'job_status', 'job_state', 'task_status', 'processing_status']
export const CREATED_COLUMNS = ['created_at', 'inserted_at', 'enqueued_at', 'queued_at', 'submitted_at', 'created']
export const UPDATED_COLUMNS = ['updated_at', 'modified_at', 'last_modified_at', 'changed_at', 'updated']

export const STATUS_WORDS: Record<Status, string[]> = {
  queued: [
    'queued',
    'pending',
    'waiting',
    'ready',
    'new',
    'created',
    'enqueued',
    'available',
    'scheduled',
    'open',
    'todo',
  ],
  processing: [
    'processing',
    'running',
    'active',
    'in_progress',
    'started',
    'working',
    'executing',
    'busy',
    'reserved',
    'claimed',
  ],
  done: ['done', 'completed', 'complete', 'succeeded', 'success', 'successful', 'finished', 'processed', 'ok'],
  failed: ['failed', 'error', 'errored', 'failure', 'dead', 'discarded', 'crashed'],
}

/** locked_by, lockedBy, LOCKED_BY and "Locked By" are one name. */
export function plainName(name: string): string {
  return name.replaceAll(/[\s_-]/g, '').toLowerCase()
}

/** A status is a word: numbers, booleans, times and documents cannot hold one. */
export function canHoldWord({ type, words }: { type: string; words: readonly string[] | null }): boolean {
  return (
    words !== null ||
    !/^(smallint|integer|bigint|numeric|real|double|boolean|timestamp|date|time|interval|json|uuid|bytea|bit|"char")|\[\]$/.test(
      type,
    )
  )
}

/** How near the front of the list a word stands; -1 when it is not in it. */
export function rankIn(list: readonly string[], word: string): number {
  return list.findIndex((each) => plainName(each) === plainName(word))
}

/** Whether a profile can name such a column at all. */
export function isPlain(name: string): boolean {
  return profileSchema.shape.updatedAt.safeParse(name).success
}

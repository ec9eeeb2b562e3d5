/** A profile says how one table spells our ideas: its columns, its status words, its events and its policy. */
import { z } from 'zod'

import { DEFAULT_EVENT_NAMES } from '../job/event.ts'

const name = z.string().min(1).max(63)
const column = name.nullable()

export const profileSchema = z.strictObject({
  /** Plain (`jobs`) or schema-qualified (`media.jobs`), spelled exactly as in the catalog. */
  table: z.string().min(1).max(127),
  /** A column the table lacks is null; only `id` and `status` cannot be. */
  columns: z.strictObject({
    id: name,
    status: name,
    holder: column,
    leaseExpiresAt: column,
    heartbeatAt: column,
    startedAt: column,
    attempts: column,
    maxAttempts: column,
    stage: column,
    nextRunAt: column,
    failCode: column,
    failReason: column,
    progress: column,
    expectedDurationMs: column,
    finishedAt: column,
  }),
  /** Further timestamps that tell when a job without lease and heartbeat was last alive, best first. Missing ones are passed over. */
  otherTimestamps: z.array(name),
  /** Set to now at every change of status where the table has it. */
  updatedAt: column,
  /** Stands in for a NULL due time, so that "oldest due first" also holds for jobs that never waited. */
  createdAt: column,
  statuses: z.strictObject({ queued: name, processing: name, done: name, failed: name }),
  events: z
    .strictObject({
      table: z.string().min(1).max(127),
      jobId: name,
      data: name,
      names: z.strictObject({
        created: name,
        processing: name,
        done: name,
        failed: name,
        retry: name,
        reaperRequeued: name,
        reaperFailed: name,
        requeuedStale: name,
        progress: name,
        aborted: name,
      }),
    })
    .nullable(),
  policy: z.strictObject({
    /** What happens to a job whose time ran out and that has attempts left. */
    onExpiry: z.enum(['requeue', 'fail']),
    /** Who counts attempts: our claims, or (for workers that never count) the recovery. */
    countAttempts: z.enum(['claim', 'recovery']),
  }),
})

export type Profile = z.infer<typeof profileSchema>
export type ColumnKey = keyof Profile['columns']

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
    otherTimestamps: ['started_at', 'updated_at', 'created_at'],
    updatedAt: 'updated_at',
    createdAt: 'created_at',
    statuses: { queued: 'queued', processing: 'processing', done: 'done', failed: 'failed' },
    events: { table: 'job_events', jobId: 'job_id', data: 'data', names: DEFAULT_EVENT_NAMES },
    policy: { onExpiry: 'requeue', countAttempts: 'claim' },
  }
}

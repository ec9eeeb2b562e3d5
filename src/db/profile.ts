/** A profile says how one table spells our ideas: its columns, its status words, its events and its policy. */
import { z } from 'zod'

const DAY = 24 * 3600

/** A plain name. Everything is quoted anyway; what is refused here is what can only be a mistake or an attempt. */
const PLAIN = String.raw`[\p{L}_][\p{L}\p{N}_$ -]{0,62}`
const nameError = 'expected a plain name: letters, digits, _ and $, at most 63 characters'
const name = z.string({ error: nameError }).regex(new RegExp(`^${PLAIN}$`, 'u'), { error: nameError })
const column = name.nullable()
const tableError = 'expected a table name like jobs or media.jobs, spelled exactly as in the database'
const table = z.string({ error: tableError }).regex(new RegExp(`^${PLAIN}(\\.${PLAIN})?$`, 'u'), { error: tableError })
const wordError = 'expected a word of 1 to 63 characters'
const word = z.string({ error: wordError }).min(1, { error: wordError }).max(63, { error: wordError })
const seconds = (min: number, max: number): z.ZodType<number | null> =>
  z
    .number({ error: `expected a number of seconds from ${min} to ${max}, or null` })
    .min(min, { error: `expected at least ${min} seconds` })
    .max(max, { error: `expected at most ${max} seconds` })
    .nullable()
const text = z.string().min(1).max(500).nullable()

const profileShape = z.strictObject({
  /** Plain (`jobs`) or schema-qualified (`media.jobs`), spelled exactly as in the catalog. */
  table,
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
  /** The stage of every job of a table that has no column for it. */
  stage: word.nullable(),
  /** SLA factors of this table's stages, where they differ from the settings'. */
  slaFactors: z.record(word, z.number().min(1).max(10_000)),
  /** Further timestamps that tell when a job without lease and heartbeat was last alive, best first. Missing ones are passed over. */
  otherTimestamps: z.array(name),
  /** Set to now at every change of status where the table has it. */
  updatedAt: column,
  /** Stands in for a NULL due time, so that "oldest due first" also holds for jobs that never waited. */
  createdAt: column,
  statuses: z.strictObject({ queued: word, processing: word, done: word, failed: word }),
  events: z
    .strictObject({
      table,
      jobId: name,
      data: name,
      /** Filled with the event's type and time where the table has such columns. */
      type: column,
      at: column,
      /** What to put into further columns, the same for every event. */
      values: z.record(name, z.union([z.string().max(500), z.number(), z.boolean()])),
      names: z.strictObject({
        created: word,
        processing: word,
        done: word,
        failed: word,
        retry: word,
        reaperRequeued: word,
        reaperFailed: word,
        requeuedStale: word,
        undispatched: word,
        progress: word,
        aborted: word,
        operatorRetry: word,
        operatorCancel: word,
        operatorEndedLease: word,
      }),
    })
    .nullable(),
  policy: z.strictObject({
    /** What happens to a job whose time ran out and that has attempts left. */
    onExpiry: z.enum(['requeue', 'fail']),
    /** Who counts attempts: our claims, or (for workers that never count) the recovery. */
    countAttempts: z.enum(['claim', 'recovery']),
    /** How often this table's workers beat. Null: the settings' heartbeat. */
    heartbeatSec: seconds(0.1, 3600),
    /** Age of a heartbeat, without a lease, that counts as dead. Null: LEASE_TIMEOUT_SEC. */
    staleAfterSec: seconds(0.2, DAY),
    /** Age of a start, without lease and heartbeat, that counts as dead. Null: REAPER_NULL_LEASE_SEC. */
    noHeartbeatSec: seconds(1, 30 * DAY),
    /** What happens to a job that is due for too long and that nobody took. Null: republish with a dispatcher, else report. */
    queuedOrphans: z.enum(['report', 'republish', 'fail']).nullable(),
    /** How long is too long. Null: QUEUED_ORPHAN_SEC. */
    queuedOrphanSec: seconds(1, 30 * DAY),
    /** The reason written to a job that fails because its worker is gone. Null: the name of the rule. */
    orphanReason: text,
    /** The reason written to a job that fails because nobody ever took it. Null: `undispatched`. */
    undispatchedReason: text,
  }),
})

export type Profile = z.infer<typeof profileShape>
export type ColumnKey = keyof Profile['columns']

/** The shape, and what its parts must not say together. */
export const profileSchema = profileShape.superRefine((profile, context) => {
  const fault = (path: (string | number)[], message: string): void =>
    context.addIssue({ code: 'custom', path, message })
  const { columns, policy, statuses } = profile
  if (policy.onExpiry === 'requeue' && columns.attempts === null) {
    fault(
      ['columns', 'attempts'],
      'expected a column: without one a job would be requeued for ever; or set policy.onExpiry to "fail"',
    )
  }
  if (profile.stage !== null && columns.stage !== null) {
    fault(['stage'], 'expected null, because columns.stage names a column; set one of the two')
  }
  const [words, used] = [Object.values(statuses), Object.values(columns).filter((each) => each !== null)]
  if (new Set(words).size < words.length) fault(['statuses'], 'expected four different words')
  const twice = used.find((each, at) => used.indexOf(each) !== at)
  if (twice !== undefined) fault(['columns'], `expected every column once, got ${twice} twice`)
  const { staleAfterSec, heartbeatSec } = policy
  if (staleAfterSec !== null && heartbeatSec !== null && staleAfterSec < 2 * heartbeatSec) {
    fault(['policy', 'staleAfterSec'], `expected at least two heartbeats (${2 * heartbeatSec} s), got ${staleAfterSec}`)
  }
})

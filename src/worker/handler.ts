/** What a team writes: one function per stage. What it is given, and what it can say when it fails. */
import type { Log } from '../telemetry/log.ts'
import type { Run } from './child.ts'
import type { Lease } from './lease.ts'

export interface HandlerContext {
  /** The job's row, in the table's own spelling. */
  job: Record<string, unknown>
  lease: Lease
  /** Aborted when the lease is lost, a deadline passes or the worker stops. Pass it on to whatever takes time. */
  signal: AbortSignal
  /** 0 to 100; clamped, never backwards, and stored no more often than is useful. */
  progress: (pct: number) => Promise<void>
  /** Tells something of this attempt in the job's timeline; refused once the lease is lost. */
  event: (type: string, data?: Record<string, unknown>) => Promise<void>
  /** Throws unless this attempt still holds the job. Call it right before an effect outside the database. */
  confirm: () => Promise<void>
  /** A folder of this attempt alone. */
  scratchDir: string
  /** Puts a finished file at its final place, whole or not at all. */
  publish: (file: string, options?: PublishOptions) => Promise<void>
  /** Runs a program that dies with this attempt. */
  run: Run
  log: Log
}

export interface PublishOptions {
  /** The artifact's name under results/{jobId}/; by default clip.mp4, or transcript.json for a transcript. */
  name?: string
  /** Throws when the file is not what it should be. */
  validate?: (file: string) => Promise<void>
}

export type Handler = (context: HandlerContext) => Promise<unknown>

/** One function per stage; `default` takes the jobs of every other stage and of none. */
export type Handlers = Record<string, Handler>

/** An error that says what it means for the job. Anything else that is thrown counts as transient. */
export class JobError extends Error {
  readonly code: string
  /** Undefined: the code decides. */
  readonly permanent: boolean | undefined

  constructor(code: string, message: string, options: { permanent?: boolean; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? {} : { cause: options.cause })
    this.name = 'JobError'
    this.code = code
    this.permanent = options.permanent
  }
}

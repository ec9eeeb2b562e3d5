/** What a handler is given: every way in which an attempt can say or keep something, each behind its fence. */
import { tellEvent, writeProgress } from '../db/attempt.ts'
import type { Database } from '../db/client.ts'
import type { Profile } from '../db/profile.ts'
import { cleanDetails, DEFAULT_EVENT_NAMES } from '../job/event.ts'
import type { ProgressGate } from '../job/progress.ts'
import { artifactKey, type Storage } from '../storage/storage.ts'
import type { Log } from '../telemetry/log.ts'
import { publishArtifact } from './artifact.ts'
import type { Run } from './child.ts'
import type { FencedWrites } from './fenced-writes.ts'
import { type HandlerContext, JobError, type PublishOptions } from './handler.ts'
import type { ClaimedJob, Lease } from './lease.ts'

export interface ContextParts {
  tools: { db: Database; profile: Profile; storage: Storage; log: Log }
  writes: FencedWrites
  gate: ProgressGate
  signal: AbortSignal
  scratchDir: string
  run: Run
}

export function createContext({ lease, job }: ClaimedJob, parts: ContextParts): HandlerContext {
  const { tools, writes, gate } = parts
  return {
    job,
    lease,
    signal: parts.signal,
    log: tools.log,
    scratchDir: parts.scratchDir,
    run: (command, options) => quiet(parts.run(command, options)),
    progress(pct) {
      const worth = gate.report(pct, performance.now())
      // Not waited for: a database that is away must not hold up the work. What a failure would say, the signal says too.
      if (worth !== null) void quiet(writes.write((table) => writeProgress(tools.db, table, lease, { pct: worth })))
      return Promise.resolve()
    },
    event: (type, data = {}) => quiet(tell(type, cleanDetails(data))),
    confirm: () => quiet(writes.confirm()),
    publish: (file, options = {}) => quiet(publish(file, options)),
  }

  async function tell(type: string, details: Record<string, unknown>): Promise<void> {
    refuseOwnEvents(type, tools.profile)
    await writes.write((table) => tellEvent(tools.db, table, lease, { type, details }))
  }

  async function publish(file: string, options: PublishOptions): Promise<void> {
    const release = gate.hold()
    try {
      const key = artifactKey(lease.id, options.name ?? artifactName(lease))
      const { validate } = options
      const { table, id: jobId, attempt } = lease
      const confirm = (): Promise<void> => writes.confirm()
      const artifact = { storage: tools.storage, key, file, table, jobId, attempt, confirm }
      await publishArtifact({ ...artifact, ...(validate ? { validate } : {}) })
      await writes.write((opened) => tellEvent(tools.db, opened, lease, { type: 'uploaded', details: { key } }))
    } finally {
      release()
    }
  }
}

/** Whoever waits sees the error; when nobody does, it must not end the process: the signal carries it too. */
function quiet<T>(work: Promise<T>): Promise<T> {
  work.catch(() => undefined)
  return work
}

/** Names that tell of a change of status are written with that change, and by nobody else. */
function refuseOwnEvents(type: string, profile: Profile): void {
  const { progress: _, ...ours } = profile.events?.names ?? DEFAULT_EVENT_NAMES
  if (type.trim() !== '' && !Object.values(ours).includes(type)) return
  throw new JobError(
    'VALIDATION',
    `an event of a handler cannot be called ${JSON.stringify(type)}: that name has its own meaning`,
  )
}

/** What a retry looks for before it runs anything. */
export function artifactName({ table, stage }: Lease): string {
  return stage === 'asr' || table.split('.').at(-1) === 'asr_jobs' ? 'transcript.json' : 'clip.mp4'
}

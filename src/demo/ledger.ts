/** What the witness saw, as the lives of jobs: who ran which attempt, how each ended, and what must never happen. */
import type { Sighting } from '../db/witness.ts'
import { STATUSES } from '../job/status.ts'

export interface Attempt {
  jobId: string
  /** The number under which people speak of the job. */
  clip: number
  number: number
  /** The worker that claimed it, by the name it came under. */
  worker: string
  claimedAtMs: number
  endedAtMs: number | null
  end: 'done' | 'requeued' | 'failed' | null
}

export interface JobLife {
  id: string
  clip: number
  /** Null when the row was deleted. */
  status: string | null
  /** Of the attempt that runs. */
  progress: number
  attempts: Attempt[]
  /** The attempts that told of a published file, and those that told of their success. */
  published: Set<number>
  finished: Set<number>
}

/** `lost`: a job is gone or in no legal status. `twice`: somebody wrote who no longer had the right to. */
export interface Breach {
  kind: 'lost' | 'twice'
  jobId: string
  what: string
}

export interface Ledger {
  jobs: ReadonlyMap<string, JobLife>
  breaches: readonly Breach[]
  add(sighting: Sighting): void
}

/** `workers`: the names under which workers come; the reaper and whoever adds jobs are bound by other rules. */
export function createLedger(workers: readonly string[]): Ledger {
  const jobs = new Map<string, JobLife>()
  const breaches: Breach[] = []

  function lifeOf(id: string): JobLife {
    const known = jobs.get(id)
    if (known) return known
    const clip = jobs.size + 1
    const fresh = { id, clip, status: null, progress: 0, attempts: [], published: new Set<number>() }
    const life: JobLife = { ...fresh, finished: new Set<number>() }
    jobs.set(id, life)
    return life
  }

  function addJob({ id, op, old, new: now, writer, atMs }: Sighting): void {
    const life = lifeOf(id)
    const accuse = (kind: Breach['kind'], what: string): number => breaches.push({ kind, jobId: id, what })
    const current = life.attempts.at(-1)
    const was = life.status
    life.status = now === null ? null : String(now.status)
    if (now === null) accuse('lost', `was deleted by ${writer}`)
    else if (!STATUSES.some((status) => status === now.status)) accuse('lost', `got the status ${life.status}`)
    if (now === null || op === 'INSERT') return
    life.progress = Number(now.progress ?? 0)

    const isClaim = now.status === 'processing' && (was !== 'processing' || now.locked_by !== old?.locked_by)
    if (was === 'done') accuse('twice', `was changed by ${writer} after it was done`)
    else if (isClaim && was === 'processing') accuse('twice', `was taken by ${writer} from a worker that still had it`)
    else if (!isClaim && workers.includes(writer) && (was !== 'processing' || current?.worker !== writer))
      accuse('twice', `was written to by ${writer}, who did not have it`)

    if (isClaim) {
      const number = Number(now.attempt_count)
      const { clip } = life
      life.attempts.push({ jobId: id, clip, number, worker: writer, claimedAtMs: atMs, endedAtMs: null, end: null })
    } else if (was === 'processing' && now.status !== 'processing' && current) {
      current.endedAtMs = atMs
      current.end = now.status === 'done' ? 'done' : now.status === 'failed' ? 'failed' : 'requeued'
    }
  }

  function addEvent({ id, new: row, writer }: Sighting): void {
    const told = row?.data as { type?: string; details?: { attempt?: number } } | undefined
    if (!told || !workers.includes(writer)) return
    const life = lifeOf(id)
    const current = life.attempts.at(-1)
    const attempt = Number(told.details?.attempt ?? current?.number)
    const accuse = (what: string): number => breaches.push({ kind: 'twice', jobId: id, what })
    if (attempt !== current?.number || writer !== current.worker)
      accuse(
        `${writer} told ${told.type} of attempt ${attempt}, when ${current?.worker} had attempt ${current?.number}`,
      )
    for (const [type, attempts] of [['uploaded', life.published] as const, ['done', life.finished] as const]) {
      if (told.type !== type) continue
      attempts.add(attempt)
      if (attempts.size > 1) accuse(`${type} was told by attempts ${[...attempts].join(' and ')}`)
    }
  }

  return {
    jobs,
    breaches,
    add: (sighting) => (sighting.source === 'job' ? addJob(sighting) : addEvent(sighting)),
  }
}

export function ledgerOf(record: readonly Sighting[], workers: readonly string[]): Ledger {
  const ledger = createLedger(workers)
  for (const sighting of record) ledger.add(sighting)
  return ledger
}

/** Every attempt there was, in the order of the claims. */
export function attemptsIn(ledger: Ledger): Attempt[] {
  const all = [...ledger.jobs.values()].flatMap(({ attempts }) => attempts)
  return all.toSorted((a, b) => a.claimedAtMs - b.claimedAtMs)
}

/** The attempts that are running, all of them or those of one worker. */
export function runningIn(ledger: Ledger, worker?: string): Attempt[] {
  return [...ledger.jobs.values()].flatMap(({ attempts }) => {
    const last = attempts.at(-1)
    return last && last.end === null && (worker === undefined || last.worker === worker) ? [last] : []
  })
}

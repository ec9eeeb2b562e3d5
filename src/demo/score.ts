/** The closing score: what became of every job, and how long each kind of death kept one waiting. */
import { STATUSES } from '../job/status.ts'
import { type Attempt, attemptsIn, type Breach, type Ledger } from './ledger.ts'

export const DEATHS = ['crash', 'power', 'freeze', 'program'] as const

/** How an attempt can die; a restart of the database kills none. */
export type Death = (typeof DEATHS)[number]

/** Something bad that was done, by the same clock as the witness's. */
export type Deed =
  | { kind: Exclude<Death, 'program'>; atMs: number; victim: string }
  | { kind: 'program'; atMs: number; victim: string; jobId: string }
  | { kind: 'database'; atMs: number; downMs: number }

export interface Facts {
  ledger: Ledger
  deeds: readonly Deed[]
  /** Jobs that the database said it has. */
  told: readonly string[]
  /** How each stands in the table itself. */
  standings: readonly { id: string; status: string }[]
  /** Jobs whose clip is there and matches its digest. */
  whole: ReadonlySet<string>
}

export interface Spread {
  medianMs: number
  worstMs: number
}

export interface DeathScore {
  kind: Death
  times: number
  /** Attempts that died of it. */
  attempts: number
  /** From the kill until the job was in the queue again; null when nothing came back. */
  requeued: Spread | null
  /** From the kill until the next attempt ran. */
  runningAgain: Spread | null
}

export interface Score {
  created: number
  done: number
  failed: number
  /** Still queued or running when the time to finish was over. */
  unfinished: number
  lost: number
  ranTwiceUnnoticed: number
  attempts: number
  /** Attempts that did not end by their worker's own word. */
  attemptsLost: number
  /** Jobs that lost an attempt and are done. */
  recovered: number
  deaths: DeathScore[]
  database: { restarts: number; worstDownMs: number | null; attemptsRunning: number; attemptsLost: number }
  /** What broke a promise, each in a sentence; empty when all is well. */
  breaches: string[]
  /** Nothing lost, nothing run twice unnoticed, nothing left open, and something was really recovered. */
  isProven: boolean
}

export function scoreOf(facts: Facts): Score {
  const { ledger, deeds } = facts
  const attempts = attemptsIn(ledger)
  const cut = attempts.filter(({ end }) => end === 'requeued' || end === 'failed')
  const breaches = [...ledger.breaches, ...missing(facts)]
  const count = (status: string): number => facts.standings.filter((each) => each.status === status).length
  const lost = new Set(breaches.filter(({ kind }) => kind === 'lost').map(({ jobId }) => jobId)).size
  const twice = new Set(breaches.filter(({ kind }) => kind === 'twice').map(({ jobId }) => jobId)).size
  const unfinished = count('queued') + count('processing')
  const done = new Set(facts.standings.filter(({ status }) => status === 'done').map(({ id }) => id))
  const recovered = new Set(cut.map(({ jobId }) => jobId).filter((id) => done.has(id))).size
  return {
    created: ledger.jobs.size,
    done: done.size,
    failed: count('failed'),
    unfinished,
    lost,
    ranTwiceUnnoticed: twice,
    attempts: attempts.length,
    attemptsLost: cut.length,
    recovered,
    deaths: DEATHS.map((kind) => deathScore(kind, ledger, deeds)).filter(({ times }) => times > 0),
    database: databaseScore(ledger, deeds),
    breaches: [...new Set(breaches.map((breach) => inWords(breach, ledger)))],
    isProven: lost === 0 && twice === 0 && unfinished === 0 && recovered > 0,
  }
}

function inWords({ jobId, what }: Breach, ledger: Ledger): string {
  return `clip ${ledger.jobs.get(jobId)?.clip ?? '?'} (${jobId}) ${what}`
}

/** Against what the database promised us, and against the files: a job that is done without its clip is lost, too. */
function missing({ ledger, told, standings, whole }: Facts): Breach[] {
  const status = new Map(standings.map((each) => [each.id, each.status]))
  const known = new Set([...told, ...ledger.jobs.keys()])
  return [...known].flatMap((jobId): Breach[] => {
    const now = status.get(jobId)
    if (now === undefined) return [{ kind: 'lost', jobId, what: 'was created and is not in the table' }]
    if (!STATUSES.some((each) => each === now)) return [{ kind: 'lost', jobId, what: `has the status ${now}` }]
    if (now === 'done' && !whole.has(jobId))
      return [{ kind: 'lost', jobId, what: 'is done, and its clip is not whole' }]
    return []
  })
}

function deathScore(kind: Death, ledger: Ledger, deeds: readonly Deed[]): DeathScore {
  const mine = deeds.filter((deed) => deed.kind === kind)
  const recoveries = mine.flatMap((deed) => hitBy(deed, ledger).map((hit) => recoveryOf(hit, deed.atMs, ledger)))
  const spread = (key: keyof Recovery): Spread | null => spreadOf(recoveries.flatMap((each) => each[key] ?? []))
  return {
    kind,
    times: mine.length,
    attempts: recoveries.length,
    requeued: spread('requeuedMs'),
    runningAgain: spread('runningMs'),
  }
}

/** The attempts that died of it. One whose success was on its way already did not. */
export function hitBy(deed: Deed, ledger: Ledger): Attempt[] {
  if (deed.kind === 'database') return []
  return runningAt(ledger, deed.atMs).filter(
    ({ worker, end, jobId }) =>
      worker === deed.victim && end !== 'done' && (deed.kind !== 'program' || jobId === deed.jobId),
  )
}

export function runningAt(ledger: Ledger, atMs: number): Attempt[] {
  return attemptsIn(ledger).filter(
    ({ claimedAtMs, endedAtMs }) => claimedAtMs <= atMs && (endedAtMs === null || endedAtMs > atMs),
  )
}

export interface Recovery {
  requeuedMs: number | null
  runningMs: number | null
}

/** From the moment of the deed, by the witness's clock. */
export function recoveryOf(attempt: Attempt, atMs: number, ledger: Ledger): Recovery {
  const next = ledger.jobs.get(attempt.jobId)?.attempts.find(({ number }) => number > attempt.number)
  const since = (ms: number | null | undefined): number | null =>
    ms === null || ms === undefined ? null : Math.max(0, ms - atMs)
  return { requeuedMs: since(attempt.endedAtMs), runningMs: since(next?.claimedAtMs) }
}

/** What was running when the database went away, and what of it did not end by its worker's own word. */
function databaseScore(ledger: Ledger, deeds: readonly Deed[]): Score['database'] {
  const restarts = deeds.filter((deed) => deed.kind === 'database')
  const running = restarts.flatMap((deed) => runningAt(ledger, deed.atMs))
  return {
    restarts: restarts.length,
    worstDownMs: restarts.length === 0 ? null : Math.round(Math.max(...restarts.map(({ downMs }) => downMs))),
    attemptsRunning: running.length,
    attemptsLost: running.filter(({ end }) => end !== 'done').length,
  }
}

function spreadOf(ms: number[]): Spread | null {
  if (ms.length === 0) return null
  const sorted = ms.toSorted((a, b) => a - b)
  const middle = (sorted.length - 1) / 2
  const medianMs = ((sorted[Math.floor(middle)] ?? 0) + (sorted[Math.ceil(middle)] ?? 0)) / 2
  return { medianMs: Math.round(medianMs), worstMs: Math.round(sorted.at(-1) ?? 0) }
}

/** The proof: real workers on a copy of the table's shape, two of them killed, and how long recovery took on this database. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { insertJob } from '../db/enqueue.ts'
import type { Profile } from '../db/profile.ts'
import { type HeldJob, makeScratch, type Moment, readHeld, readMoments, type Scratch } from '../db/scratch-copy.ts'
import { castReaper, type CastReaper, castWorker, type CastWorker } from '../demo/cast.ts'
import { type Clock, readClock } from './clock.ts'
import { environmentOf, type Pace, type Surroundings, tablesFileIn } from './pace.ts'

export interface ProofOptions {
  db: Database
  profile: Profile
  /** Where the copy goes; whoever calls drops it. */
  schema: string
  pace: Pace
  surroundings: Omit<Surroundings, 'folder'>
  /** Aborted at Ctrl-C. */
  stopped: AbortSignal
  /** A step that begins, for the person waiting. */
  onStep: (step: string) => void
}

export interface Proof {
  table: string
  roundTripMs: { median: number; worst: number }
  pace: Pace
  /** What the table's policy does with a job whose worker died. */
  onExpiry: Profile['policy']['onExpiry']
  /** The worker dies, its supervisor lives. */
  supervised: Recovery
  /** Both die: nobody is left to give the lease back. */
  alone: Recovery
}

/** All from the moment of the kill, in milliseconds by the database's clock. */
export interface Recovery {
  /** The supervisor saw it, or the lease ran out. */
  detectedMs: number
  /** The job was in the queue again, or failed where the policy says so. */
  movedMs: number
  /** The next attempt ran, and was done; null where the policy lets the job fail. */
  runningMs: number | null
  doneMs: number | null
}

/** What every wait gets beyond the lease. */
const PATIENCE_MS = 30_000
const LOOK_EVERY_MS = 20
/** How often somebody who waits hears that there is nothing new. */
const TELL_EVERY_MS = 5000

export async function prove(options: ProofOptions): Promise<Proof> {
  const { db, profile, pace, onStep, stopped } = options
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-prove-'))
  const cast: { reaper: CastReaper | null; workers: CastWorker[] } = { reaper: null, workers: [] }
  try {
    onStep(`copying the shape of ${profile.table} into schema ${options.schema}`)
    const scratch = await makeScratch(db, profile, options.schema)
    const { profile: copy } = scratch.table
    writeFileSync(tablesFileIn(folder), JSON.stringify([copy]))
    const clock = await readClock(db)

    onStep('starting a reaper and two workers on it')
    const env = environmentOf({ ...options.surroundings, folder }, pace)
    cast.reaper = castReaper(env)
    cast.workers = ['worker 1', 'worker 2'].map((name) => castWorker(name, env))
    for (const worker of cast.workers) worker.start()
    await Promise.all([cast.reaper.http, ...cast.workers.map((worker) => worker.ready())])

    const scene: Scene = { db, scratch, clock, workers: cast.workers, pace, stopped, onStep }
    onStep('killing a worker in the middle of a job; its supervisor lives')
    const supervised = await recoverFrom(scene, 1, crash)
    onStep(`killing a worker together with its supervisor; the lease of ${pace.leaseSec} s has to run out`)
    const alone = await recoverFrom(scene, 2, cutPower)
    const { medianMs: median, worstMs: worst } = clock
    return {
      table: profile.table,
      roundTripMs: { median, worst },
      pace,
      onExpiry: copy.policy.onExpiry,
      supervised,
      alone,
    }
  } finally {
    onStep('clearing away')
    await Promise.all([cast.reaper?.kill(), ...cast.workers.map((worker) => worker.cutPower())])
    rmSync(folder, { recursive: true, force: true })
  }
}

interface Scene {
  db: Database
  scratch: Scratch
  clock: Clock
  workers: readonly CastWorker[]
  pace: Pace
  stopped: AbortSignal
  onStep: (step: string) => void
}

/** Kills the worker, and answers when its death was noticed, by the database's clock. */
type Kill = (scene: Scene, victim: CastWorker, id: string) => Promise<{ atMs: number; detectedAtMs: number }>

const crash: Kill = async (scene, victim) => {
  const [atMs, earlier] = [scene.clock.now(), victim.deathSeenAtMs()]
  victim.crash()
  const seenAtMs = await waitFor(scene, 'the supervisor to see its worker die', () => {
    const seen = victim.deathSeenAtMs()
    return seen === earlier ? null : seen
  })
  return { atMs, detectedAtMs: Math.max(atMs, scene.clock.fromLocal(seenAtMs)) }
}

const cutPower: Kill = async (scene, victim, id) => {
  const atMs = scene.clock.now()
  await victim.cutPower()
  const held = await readHeld(scene.db, scene.scratch, id)
  return { atMs, detectedAtMs: held?.leaseEndsAtMs ?? atMs }
}

async function recoverFrom(scene: Scene, n: number, kill: Kill): Promise<Recovery> {
  const { db, scratch, workers } = scene
  const { table } = scratch
  const { names } = table.profile.events ?? {}
  await waitFor(scene, 'both workers to be up', () => workers.every((worker) => worker.state() === 'up') || null)
  const id = await insertJob(db, table, scratch.rowOf(n))
  const held = await waitFor(scene, 'a worker to take the job', () => readHeld(db, scratch, id))
  const victim = await waitFor(scene, 'the worker to say its name', () => byHolder(workers, held))
  const { atMs, detectedAtMs } = await kill(scene, victim, id)

  const moment = (what: string, isIt: (each: Moment) => boolean): Promise<number> =>
    waitFor(scene, what, async () => (await readMoments(db, scratch, id)).find(isIt)?.atMs ?? null)
  const since = (ms: number): number => Math.max(0, ms - atMs)
  const movedAtMs = await moment('the job to be taken back', ({ type }) =>
    [names?.reaperRequeued, names?.reaperFailed].includes(type),
  )
  const moved = { detectedMs: since(detectedAtMs), movedMs: since(movedAtMs) }
  if (table.profile.policy.onExpiry === 'fail') return { ...moved, runningMs: null, doneMs: null }
  const isSecond = ({ attempt }: Moment): boolean => attempt === 2
  const runningAtMs = await moment('the job to run again', (each) => isSecond(each) && each.type === names?.processing)
  const doneAtMs = await moment('the job to be done', (each) => isSecond(each) && each.type === names?.done)
  return { ...moved, runningMs: since(runningAtMs), doneMs: since(doneAtMs) }
}

function byHolder(workers: readonly CastWorker[], { holder }: HeldJob): CastWorker | null {
  return workers.find((worker) => worker.holder() === holder) ?? null
}

/** What does not come true would be worth knowing: that is what a proof is for. */
async function waitFor<T>(
  { pace, stopped, onStep }: Scene,
  what: string,
  ask: () => T | null | Promise<T | null>,
): Promise<T> {
  const limitMs = pace.leaseSec * 1000 + PATIENCE_MS
  const startedAt = performance.now()
  for (let tellAt = TELL_EVERY_MS; ;) {
    const answer = await ask()
    if (answer !== null) return answer
    const waitedMs = performance.now() - startedAt
    if (waitedMs > limitMs) throw new Error(`waited ${limitMs / 1000} s in vain for ${what}`)
    if (waitedMs > tellAt) {
      onStep(`waiting for ${what}, ${Math.round(waitedMs / 1000)} s so far`)
      tellAt += TELL_EVERY_MS
    }
    await sleep(LOOK_EVERY_MS, undefined, { signal: stopped })
  }
}

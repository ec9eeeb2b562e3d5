/** The bad things that happen, one after the other: each is done, watched until it is mended, and told. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { CastWorker } from './cast.ts'
import { type Attempt, type Ledger, runningIn } from './ledger.ts'
import { killProgramOf } from './programs.ts'
import { type Deed, hitBy, recoveryOf, runningAt } from './score.ts'
import { clips, inSeconds, listed, type Story } from './story.ts'

export interface Scene {
  ledger: Ledger
  workers: readonly CastWorker[]
  story: Story
  /** What was done so far. */
  deeds: Deed[]
  /** Answers how many milliseconds it was away. */
  restartDatabase(): Promise<number>
}

export type Trouble = (scene: Scene) => Promise<void>

/** Longer than anything here should take, on a slow machine too; then the story goes on without it. */
const PATIENCE_MS = 15_000
/** A clip is worth a disaster between these percentages: begun, and not just about to end. */
const [BEGUN, ENDING] = [4, 65]

/** The worker dies, its supervisor lives. */
export const crash: Trouble = async (scene) => {
  const victim = await pickVictim(scene)
  if (!victim) return
  const hit = runningIn(scene.ledger, victim.name)
  const deed = note(scene, { kind: 'crash', atMs: Date.now(), victim: victim.name })
  victim.crash()
  scene.story.say('bad', `${victim.name} is killed (SIGKILL) in the middle of ${clipsOf(hit)}.`)
  await tellRecovery(scene, deed, (its) => `Its supervisor saw it die and gave ${its} back`)
}

/** Worker and supervisor die together: nobody is left to give anything back. */
export const powerCut: Trouble = async (scene) => {
  const victim = await pickVictim(scene)
  if (!victim) return
  const hit = runningIn(scene.ledger, victim.name)
  const deed = note(scene, { kind: 'power', atMs: Date.now(), victim: victim.name })
  await victim.cutPower()
  scene.story.say(
    'bad',
    `The power goes out under ${victim.name}: worker and supervisor die in the middle of ${clipsOf(hit)}.`,
  )
  await tellRecovery(scene, deed, (its) => `The leases ran out, and the reaper took ${its} back`)
  victim.start()
  victim.ready().then(
    () => scene.story.say('note', `The power is back, and so is ${victim.name}.`),
    () => undefined,
  )
}

/** Alive and deaf for longer than its lease; then it wakes up and goes on as if nothing had happened. */
export const freeze: Trouble = async (scene) => {
  const victim = await pickVictim(scene)
  if (!victim) return
  const { ledger, story } = scene
  const hit = runningIn(ledger, victim.name)
  const deed = note(scene, { kind: 'freeze', atMs: Date.now(), victim: victim.name })
  const [lostBefore, breachesBefore] = [victim.lostLeases(), ledger.breaches.length]
  victim.freeze()
  story.say('frozen', `${victim.name} is frozen (SIGSTOP) in the middle of ${clipsOf(hit)}: alive, and deaf.`)
  await tellRecovery(scene, deed, (its) => `The leases ran out, and the reaper took ${its} back`)
  victim.thaw()
  const taken = hitBy(deed, ledger)
  if (taken.length === 0) return
  story.say('frozen', `${victim.name} thaws after ${inSeconds(Date.now() - deed.atMs)} and goes on where it was.`)
  const isTold = await until(() => victim.lostLeases() - lostBefore >= taken.length, PATIENCE_MS)
  // A moment more, for whatever it might still write.
  await sleep(300)
  if (isTold && ledger.breaches.length === breachesBefore)
    story.say(
      'good',
      `It was told that ${clipsOf(taken)} ${taken.length === 1 ? 'is' : 'are'} not its own any more. Its late writes changed nothing.`,
    )
}

/** One program of a worker dies; the worker lives, and says itself what happened. */
export const killProgram: Trouble = async (scene) => {
  const victim = await pickVictim(scene)
  const hit = victim && halfDone(scene.ledger, victim.name)[0]
  const atMs = Date.now()
  if (!hit || !killProgramOf(hit.jobId)) return
  const { worker, jobId, clip } = hit
  const deed = note(scene, { kind: 'program', atMs, victim: worker, jobId })
  scene.story.say('bad', `ffmpeg is killed under ${worker}, in the middle of ${clips([clip])}.`)
  await tellRecovery(scene, deed, (its) => `${worker} saw it fail and gave ${its} back`)
}

/** Under everybody at once. Nobody is to blame, so nobody loses a lease. */
export const restartDatabase: Trouble = async ({ ledger, story, deeds, ...scene }) => {
  const atMs = Date.now()
  story.say('bad', `The database is stopped under everybody, with ${runningIn(ledger).length} clips running.`)
  const downMs = await scene.restartDatabase()
  deeds.push({ kind: 'database', atMs, downMs })
  story.say('back', `The database is back after ${inSeconds(downMs)}.`)
  await until(() => runningAt(ledger, atMs).every(({ end }) => end !== null), PATIENCE_MS)
  const running = runningAt(ledger, atMs)
  const through = running.filter(({ end }) => end === 'done').length
  story.say(
    through === running.length ? 'good' : 'back',
    `${through} of ${running.length} clips that were running are done, at the same attempt.`,
  )
}

function note<D extends Deed>({ deeds }: Scene, deed: D): D {
  deeds.push(deed)
  return deed
}

/** Somebody with half a clip in hand, by turns. */
async function pickVictim({ workers, ledger, deeds }: Scene): Promise<CastWorker | null> {
  const timesHurt = ({ name }: CastWorker): number =>
    deeds.filter((deed) => deed.kind !== 'database' && deed.victim === name).length
  const candidates = (): CastWorker[] =>
    workers
      .filter((each) => each.state() === 'up' && halfDone(ledger, each.name).length > 0)
      .toSorted((a, b) => timesHurt(a) - timesHurt(b))
  await until(() => candidates().length > 0, PATIENCE_MS)
  return candidates()[0] ?? null
}

function halfDone(ledger: Ledger, worker: string): Attempt[] {
  return runningIn(ledger, worker).filter(({ jobId }) => {
    const progress = ledger.jobs.get(jobId)?.progress ?? 0
    return progress >= BEGUN && progress <= ENDING
  })
}

/** Told twice: when all of it waits in the queue again, and when all of it runs again. */
async function tellRecovery({ ledger, story }: Scene, deed: Deed, how: (its: string) => string): Promise<void> {
  const hit = (): Attempt[] => hitBy(deed, ledger)
  const worst = (key: 'requeuedMs' | 'runningMs'): string =>
    inSeconds(Math.max(...hit().map((each) => recoveryOf(each, deed.atMs, ledger)[key] ?? 0)))
  await until(() => hit().every(({ end }) => end !== null), PATIENCE_MS)
  if (hit().length === 0) return story.say('note', 'It had just finished all it held.')
  story.say('back', `${how(clipsOf(hit()))}: in the queue again after ${worst('requeuedMs')}.`)
  const heirs = (): Attempt[] => hit().flatMap((attempt) => heirOf(attempt, ledger) ?? [])
  await until(() => heirs().length === hit().length, PATIENCE_MS)
  if (heirs().length === 0) return
  const places = [...Map.groupBy(heirs(), ({ worker }) => worker)].map(
    ([worker, its]) => `${clipsOf(its)} on ${worker}`,
  )
  story.say('again', `Running again after ${worst('runningMs')}: ${listed(places)}.`)
}

/** The next attempt of the same job. */
function heirOf({ jobId, number }: Attempt, ledger: Ledger): Attempt | undefined {
  return ledger.jobs.get(jobId)?.attempts.find((each) => each.number > number)
}

function clipsOf(attempts: readonly Attempt[]): string {
  return clips(attempts.map(({ clip }) => clip).toSorted((a, b) => a - b))
}

export async function until(condition: () => boolean, withinMs: number): Promise<boolean> {
  const deadline = performance.now() + withinMs
  while (!condition()) {
    if (performance.now() > deadline) return false
    await sleep(40)
  }
  return true
}

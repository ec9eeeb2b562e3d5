/** The demo itself: a database, a reaper, three workers, a steady stream of clips, and a bad day. */
import { setTimeout as sleep } from 'node:timers/promises'

import { type Database, openDatabase } from '../db/client.ts'
import { migrate } from '../db/migrate.ts'
import { admit, installWitness, readRecord, readStandings, type Sighting } from '../db/witness.ts'
import { castReaper, type CastReaper, castWorker, type CastWorker } from './cast.ts'
import { createLedger, ledgerOf } from './ledger.ts'
import { PACE, settingsFor, withFfmpeg, WORKERS } from './pace.ts'
import type { Place } from './place.ts'
import { type Deed, type Score, scoreOf } from './score.ts'
import { listed, type Story } from './story.ts'
import { isFinished, streamClips, wholeClips } from './stream.ts'
import { crash, freeze, killProgram, powerCut, restartDatabase, type Scene, type Trouble, until } from './troubles.ts'
import { watchDay } from './watch.ts'

export interface DemoOptions {
  place: Place
  story: Story
  /** What every program of it finds in its environment, beside the settings. */
  env: Record<string, string>
  /** Null: clips are simulated. */
  ffmpeg: string | null
  /** Aborted when the day is over: no new clips, no new troubles. */
  over: AbortSignal
}

export interface DemoResult {
  score: Score
  dashboard: string
  /** All that the witness saw. */
  record: readonly Sighting[]
}

/** Before every trouble: a moment to read what became of the last one. */
const BREATH_MS = 1800
const DRAIN_LIMIT_MS = 60_000

export async function runDemo(options: DemoOptions): Promise<DemoResult> {
  const { place, story, over, ffmpeg } = options
  const workers: CastWorker[] = []
  let reaper: CastReaper | null = null
  let db: Database | null = null
  try {
    story.show('starting PostgreSQL …')
    const url = await place.startDatabase()
    db = openDatabase({ url, poolMax: 2, queryTimeoutSec: 2, applicationName: 'leasehold demo' })
    await migrate(db, url, { tables: ['jobs'], maxAttempts: PACE.maxAttempts })
    await installWitness(db)
    story.say('note', 'PostgreSQL runs; a witness writes down every change of a row, and who made it.')

    const env = { ...options.env, ...settingsFor(place) }
    if (ffmpeg !== null) env.PATH = withFfmpeg(place.folder, ffmpeg, env.PATH ?? '')
    reaper = castReaper({ ...env, HTTP_PORT: '0', DATABASE_URL: await admit(db, url, 'Reaper') })
    for (const name of WORKERS) {
      const worker = castWorker(name, { ...env, DATABASE_URL: await admit(db, url, name) })
      worker.start()
      workers.push(worker)
    }
    const ledger = createLedger(WORKERS)
    const watch = watchDay({ db, ledger, story, workers })
    const told = streamClips(db, ledger, { stage: ffmpeg === null ? 'simulated' : 'clip', over })

    const dashboard = await reaper.http
    story.say('note', `The reaper runs. Look inside: ${dashboard}`)
    await Promise.all(workers.map((worker) => worker.ready()))
    const who = ffmpeg === null ? 'simulated (there is no ffmpeg here)' : `made by ${ffmpeg}`
    story.say('note', `${listed(WORKERS)} work, up to ${PACE.clipsEach} clips each, ${who}. Now for a bad day.`)

    const deeds: Deed[] = []
    const scene: Scene = { ledger, workers, story, deeds, restartDatabase: () => place.restartDatabase() }
    const troubles = [crash, ...(ffmpeg === null ? [] : [killProgram]), powerCut, freeze, restartDatabase]
    await haveTroubles(scene, troubles, over)

    story.say('note', 'No new clips. What was begun is finished …')
    const ids = await told
    await until(() => isFinished(ledger, ids), DRAIN_LIMIT_MS)
    await Promise.all(workers.map((worker) => worker.stop()))
    await watch.stop()
    // Now that nobody writes any more, from the beginning and to the last row.
    const record = await readRecord(db)
    const standings = await readStandings(db)
    const whole = await wholeClips(place, standings)
    const score = scoreOf({ ledger: ledgerOf(record, WORKERS), deeds, told: ids, standings, whole })
    return { score, dashboard, record }
  } finally {
    await Promise.all([...workers.map((worker) => worker.stop()), reaper?.stop()])
    await db?.close()
  }
}

async function haveTroubles(scene: Scene, troubles: readonly Trouble[], over: AbortSignal): Promise<void> {
  for (let turn = 0; ; turn += 1) {
    await sleep(BREATH_MS, undefined, { signal: over }).catch(() => undefined)
    if (over.aborted) return
    await troubles[turn % troubles.length]?.(scene)
  }
}

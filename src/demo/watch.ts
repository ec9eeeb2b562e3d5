/** Follows the witness through the day and shows it in one line: each worker with its clips as bars, then the numbers. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { isTransient } from '../db/errors.ts'
import { readNews } from '../db/witness.ts'
import type { CastWorker } from './cast.ts'
import { type Ledger, runningIn } from './ledger.ts'
import type { Story } from './story.ts'

const LOOK_EVERY_MS = 80
const BARS = '▁▂▃▄▅▆▇█'

export interface WatchOptions {
  db: Database
  ledger: Ledger
  story: Story
  workers: readonly CastWorker[]
}

export interface Watch {
  stop(): Promise<void>
}

export function watchDay({ db, ledger, story, workers }: WatchOptions): Watch {
  let since = '0'
  const over = new AbortController()
  const look = async (): Promise<void> => {
    const { sightings, next } = await readNews(db, since)
    since = next
    for (const sighting of sightings) ledger.add(sighting)
  }
  const running = (async () => {
    while (!over.signal.aborted) {
      await look().catch((error: unknown) => {
        // While the database is away there is nothing to see.
        if (!isTransient(error)) throw error
      })
      story.show(portrait(ledger, workers))
      await sleep(LOOK_EVERY_MS)
    }
  })()
  return {
    async stop() {
      over.abort()
      await running
    },
  }
}

function portrait(ledger: Ledger, workers: readonly CastWorker[]): string {
  const jobs = [...ledger.jobs.values()]
  const count = (status: string): number => jobs.filter((job) => job.status === status).length
  const faces = workers.map((worker) => `${worker.name} ${faceOf(worker, ledger).padEnd(3)}`)
  const recovered = jobs.filter(({ attempts, status }) => attempts.length > 1 && status === 'done').length
  const numbers = [`${count('queued')} waiting`, `${count('done')} done`, `${recovered} of them recovered`]
  return `${faces.join('  ')}   ${numbers.join(' · ')}`
}

const FACES = { down: '✗✗', frozen: '❄❄', starting: '…' }

function faceOf(worker: CastWorker, ledger: Ledger): string {
  const state = worker.state()
  if (state !== 'up') return FACES[state]
  const progress = runningIn(ledger, worker.name).map(({ jobId }) => ledger.jobs.get(jobId)?.progress ?? 0)
  return progress.map((pct) => BARS.charAt(Math.min(7, Math.floor(pct / 12.5)))).join('')
}

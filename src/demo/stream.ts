/** The steady stream of clips, and what has become of it in the end. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Database } from '../db/client.ts'
import { createLocalStorage } from '../storage/local.ts'
import { artifactKey } from '../storage/storage.ts'
import { createLeases } from '../worker/lease.ts'
import type { ClipOrder } from './clips.ts'
import type { Ledger } from './ledger.ts'
import { PACE } from './pace.ts'
import type { Place } from './place.ts'

const CLIP_SECONDS = [3, 4, 5, 6]
/** So many are open at a time: everybody has something to do, and what is recovered finds a free hand at once. */
const OPEN_AT_ONCE = 6

/** Keeps a few clips waiting until the day is over; answers the ids of all that the database said it has. */
export async function streamClips(
  db: Database,
  ledger: Ledger,
  { stage, over }: { stage: string; over: AbortSignal },
): Promise<string[]> {
  const leases = createLeases({ db, table: 'jobs', maxAttempts: PACE.maxAttempts })
  const told: string[] = []
  while (!over.aborted) {
    const clip = told.length + 1
    const order: ClipOrder = { clip, seconds: CLIP_SECONDS[(clip * 3) % CLIP_SECONDS.length] ?? 4 }
    const open = told.filter((id) => !isOver(ledger.jobs.get(id)?.status)).length
    const created = open < OPEN_AT_ONCE ? await leases.enqueueJob({ stage, payload: order }) : null
    if (created?.ok) told.push(created.value)
    await sleep(120, undefined, { signal: over }).catch(() => undefined)
  }
  return told
}

export function isFinished(ledger: Ledger, told: readonly string[]): boolean {
  return [...told, ...ledger.jobs.keys()].every((id) => isOver(ledger.jobs.get(id)?.status))
}

function isOver(status: string | null | undefined): boolean {
  return status === 'done' || status === 'failed'
}

/** The jobs whose clip is there and is what its manifest says. */
export async function wholeClips(
  { storage: root }: Place,
  standings: readonly { id: string; status: string }[],
): Promise<Set<string>> {
  const storage = createLocalStorage({ root })
  const done = standings.filter(({ status }) => status === 'done').map(({ id }) => id)
  const found = await Promise.all(
    done.map(async (id) => ((await storage.verify(artifactKey(id, 'clip.mp4'))) ? id : null)),
  )
  return new Set(found.filter((id) => id !== null))
}

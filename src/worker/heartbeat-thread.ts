/**
 * The thread that renews every lease of the process, with a client of its own: neither a blocked main loop nor a busy
 * pool stops it. A main loop that stands still for too long is not alive, and then it does stop.
 */
import { parentPort, workerData } from 'node:worker_threads'

import { openDatabase } from '../db/client.ts'
import { surviveLostSocketWrites } from '../db/crash-filter.ts'
import { describeError } from '../db/errors.ts'
import { renewLeases } from '../db/heartbeat.ts'
import { tableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import { createLog } from '../telemetry/log.ts'
import type { Lease } from './lease.ts'

export interface ThreadSettings {
  url: string
  profiles: Profile[]
  heartbeatSec: number
  wedgeTimeoutSec: number
  logLevel: string
  /** A counter that the main loop moves; while it moves, the main loop lives. */
  pulse: SharedArrayBuffer
}

export type ToThread = { hold: Lease } | { drop: string }
export type FromThread =
  { lost: string } | { unknown: string } | { beats: { renewed: number; lost: number; busy: number; error: number } }

/** One lease of one attempt, as both threads call it. */
export function leaseKey({ table, id, attempt }: Pick<Lease, 'table' | 'id' | 'attempt'>): string {
  return JSON.stringify([table, id, attempt])
}

/** More failures in a row than this are worth one warning per episode. */
const TOLERATED_FAILURES = 3
/** How often the thread looks at the pulse and at leases that may have run out. */
const LOOK_MS = 100
/** A main loop that stood still for this long is told, even if nothing was lost. */
const NOTABLE_LAG_MS = 1000

if (parentPort) beatForEver(workerData as ThreadSettings, parentPort)

function beatForEver(settings: ThreadSettings, main: NonNullable<typeof parentPort>): void {
  const { heartbeatSec } = settings
  const log = createLog({ level: settings.logLevel })
  surviveLostSocketWrites(() => log.warn('a heartbeat connection closed while it was written to'))
  const db = openDatabase({
    url: settings.url,
    poolMax: settings.profiles.length,
    queryTimeoutSec: Math.max(0.5, heartbeatSec),
    applicationName: 'leasehold heartbeat',
  })
  const handles = new Map(settings.profiles.map((profile) => [profile.table, tableHandle(db, profile)]))
  /** `sentAt`: when the last renewal that was accepted was sent, by the monotonic clock. */
  const held = new Map<string, { lease: Lease; sentAt: number; isUnknown: boolean }>()
  const isAlive = watchPulse(settings, log)
  const tell = (message: FromThread): void => main.postMessage(message)
  let failures = 0
  let nextBeatAt = performance.now() + heartbeatSec * 1000
  let isBeating = false

  main.on('message', (message: ToThread) => {
    if ('hold' in message) {
      held.set(leaseKey(message.hold), { lease: message.hold, sentAt: performance.now(), isUnknown: false })
    } else {
      held.delete(message.drop)
    }
  })

  setInterval(() => {
    const now = performance.now()
    for (const [key, each] of held) {
      if (each.isUnknown || now - each.sentAt <= each.lease.leaseSec * 1000) continue
      each.isUnknown = true
      tell({ unknown: key })
    }
    if (!isAlive() || isBeating || now < nextBeatAt) return
    isBeating = true
    void beatAll().finally(() => {
      isBeating = false
    })
  }, LOOK_MS)

  async function beatAll(): Promise<void> {
    const startedAt = performance.now()
    const answers = await Promise.all([...handles.keys()].map(beatTable))
    const isFailed = answers.includes(false)
    if (!isFailed && failures > TOLERATED_FAILURES) log.info({ failures }, 'heartbeats get through again')
    failures = isFailed ? failures + 1 : 0
    if (failures === TOLERATED_FAILURES + 1) {
      log.warn({ code: 'HEARTBEAT_DEGRADED', failures, held: held.size }, 'heartbeats do not get through; jobs go on')
    }
    // After a failure a little sooner, so that the first moment the database is back is not missed by much.
    nextBeatAt = isFailed ? performance.now() + Math.min(heartbeatSec, 1) * 1000 : startedAt + heartbeatSec * 1000
  }

  /** One statement for all leases of one table. False when nothing is known of them. */
  async function beatTable(table: string): Promise<boolean> {
    const leases = [...held.values()].map(({ lease }) => lease).filter((lease) => lease.table === table)
    if (leases.length === 0) return true
    const sentAt = performance.now()
    const beats = { renewed: 0, lost: 0, busy: 0, error: 0 }
    try {
      const renewals = await handles
        .get(table)
        ?.use((opened) => renewLeases(db, opened, leases, { waitForLocks: false }))
      for (const { id, attempt, state } of renewals ?? []) {
        const key = leaseKey({ table, id, attempt })
        const mine = held.get(key)
        beats[state] += 1
        if (state === 'renewed' && mine) Object.assign(mine, { sentAt, isUnknown: false })
        if (state === 'lost' && held.delete(key)) tell({ lost: key })
      }
    } catch (error) {
      beats.error += 1
      log.debug({ table, error: describeError(error) }, 'heartbeat failed')
    }
    tell({ beats })
    return beats.error === 0
  }
}

/** Answers whether the main loop lives, and tells how long it stood still. */
function watchPulse({ pulse, wedgeTimeoutSec }: ThreadSettings, log: ReturnType<typeof createLog>): () => boolean {
  const counter = new Int32Array(pulse)
  let last = Atomics.load(counter, 0)
  let movedAt = performance.now()
  let isWedged = false
  return () => {
    const now = performance.now()
    const current = Atomics.load(counter, 0)
    const lagMs = Math.round(now - movedAt)
    if (current !== last) {
      if (isWedged) log.warn({ lagMs }, 'main loop moves again; heartbeats go on')
      else if (lagMs > NOTABLE_LAG_MS) log.warn({ lagMs }, 'main loop was blocked; heartbeats went on')
      last = current
      movedAt = now
      isWedged = false
    } else if (!isWedged && lagMs > wedgeTimeoutSec * 1000) {
      isWedged = true
      log.error({ lagMs, wedgeTimeoutSec }, 'main loop is wedged; heartbeats stop')
    }
    return !isWedged
  }
}

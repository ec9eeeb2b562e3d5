/** What an attempt writes while it runs: behind its fence, one after the other, so that its timeline keeps its order. */
import { setTimeout as sleep } from 'node:timers/promises'

import { isTransient } from '../db/errors.ts'
import type { TableHandle } from '../db/open-once.ts'
import type { JobTable } from '../db/table.ts'
import { JobError } from './handler.ts'
import type { Lease, Leases } from './lease.ts'

export interface FencedWrites {
  /** Runs a statement that answers whether the fence held. Throws when it did not: the attempt is over. */
  write(statement: (table: JobTable) => Promise<boolean>): Promise<void>
  /** Waits for a definite answer that the job is still held: an effect outside the fence must not happen on a guess. */
  confirm(): Promise<void>
  /** Resolves when everything written so far has been answered. */
  settled(): Promise<void>
}

/** The lease is somebody else's: whatever happens from here on, nothing is written. */
export class LeaseLost extends JobError {
  constructor(lease: Lease) {
    super('LEASE_LOST', `attempt ${lease.attempt} of job ${lease.id} is not held any more`)
  }
}

const CONFIRM_PAUSE_MS = 500

export function fencedWrites(
  lease: Lease,
  { handle, leases }: { handle: TableHandle; leases: Leases },
  { signal, lose }: { signal: AbortSignal; lose: () => void },
): FencedWrites {
  let last: Promise<unknown> = Promise.resolve()
  const inTurn = (act: () => Promise<void>): Promise<void> => {
    const mine = last.then(act)
    last = mine.catch(() => undefined)
    return mine
  }
  return {
    write: (statement) =>
      inTurn(async () => {
        signal.throwIfAborted()
        const isHeld = await handle.use(statement).catch((error: unknown) => {
          // The database is away: the lease is unknown, not lost. A line in the timeline is not worth an hour of work.
          if (isTransient(error)) return true
          throw error
        })
        if (!isHeld) lose()
        signal.throwIfAborted()
      }),
    confirm: () =>
      inTurn(async () => {
        for (;;) {
          signal.throwIfAborted()
          const sentAt = performance.now()
          const answer = await leases.heartbeatJob(lease)
          // An answer that was long under way tells of a lease that may be over by now: ask again.
          const isFresh = performance.now() - sentAt < lease.leaseSec * 500
          if (answer.ok && isFresh) return
          if (!answer.ok && answer.code === 'LEASE_LOST') lose()
          signal.throwIfAborted()
          await sleep(CONFIRM_PAUSE_MS, undefined, { signal }).catch(() => undefined)
        }
      }),
    async settled() {
      await last
    },
  }
}

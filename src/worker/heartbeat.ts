/** The main loop's side of the heartbeat thread: which leases it keeps alive, and who is told when one is lost. */
import { Worker } from 'node:worker_threads'

import type { Metrics } from '../telemetry/metrics.ts'
import { type FromThread, leaseKey, type ThreadSettings, type ToThread } from './heartbeat-thread.ts'
import type { Lease } from './lease.ts'

export interface Heartbeats {
  /** Keeps the lease alive until it is dropped. */
  hold(lease: Lease, told: LeaseNews): void
  drop(lease: Lease): void
  /** Ends the thread; nothing is renewed any more. */
  stop(): Promise<void>
}

export interface LeaseNews {
  /** Somebody else may have the job: stop at once and write nothing. */
  onLost: () => void
  /** Renewals do not get through and the lease may have run out: nobody knows. */
  onUnknown: () => void
}

const PULSE_MS = 100

export function startHeartbeats(
  settings: Omit<ThreadSettings, 'pulse'>,
  options: { metrics: Metrics | undefined; onDeath: (error: Error) => void },
): Heartbeats {
  const pulse = new SharedArrayBuffer(4)
  const counter = new Int32Array(pulse)
  const held = new Map<string, LeaseNews>()
  const thread = new Worker(new URL('./heartbeat-thread.ts', import.meta.url), { workerData: { ...settings, pulse } })
  const beating = setInterval(() => Atomics.add(counter, 0, 1), PULSE_MS)
  const send = (message: ToThread): void => thread.postMessage(message)
  let isStopping = false

  thread.on('message', (message: FromThread) => {
    if ('beats' in message) {
      for (const [outcome, count] of Object.entries(message.beats)) {
        options.metrics?.count('worker_heartbeats_total', { outcome }, count)
      }
      return
    }
    // A beat that was under way while a job finished finds nothing to renew: that is no loss.
    if ('lost' in message) held.get(message.lost)?.onLost()
    else held.get(message.unknown)?.onUnknown()
  })
  thread.on('error', (error) => options.onDeath(error as Error))
  thread.on('exit', (code) => {
    if (!isStopping) options.onDeath(new Error(`the heartbeat thread ended with code ${code}`))
  })

  return {
    hold(lease, told) {
      held.set(leaseKey(lease), told)
      send({ hold: lease })
    },
    drop(lease) {
      held.delete(leaseKey(lease))
      send({ drop: leaseKey(lease) })
    },
    async stop() {
      isStopping = true
      clearInterval(beating)
      await thread.terminate()
    },
  }
}

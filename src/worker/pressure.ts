/** Backpressure: when much is waiting and the machine is busy, taking more only makes everything slower. */
import { availableParallelism, loadavg } from 'node:os'

export interface PressureLimits {
  highWatermark: number
  loadThreshold: number
}

/** Both must hold: a long queue on an idle machine is work to do, a busy machine with a short queue will get there. */
export function isUnderPressure(state: { dueJobs: number; loadPerCore: number }, limits: PressureLimits): boolean {
  return state.dueJobs > limits.highWatermark && state.loadPerCore > limits.loadThreshold
}

/** The machine's load over the last minute, per core. */
export function loadPerCore(): number {
  return (loadavg()[0] ?? 0) / availableParallelism()
}

/** What a job of the proof does: the first attempt works until it is killed, every later one is done at once. */
import { setTimeout as sleep } from 'node:timers/promises'

import type { Handlers } from '../worker/handler.ts'

const LONGER_THAN_ANY_PROOF_MS = 24 * 3600 * 1000

/** @public Loaded by its path, as WORKER_HANDLERS. */
export default {
  async default({ lease, signal }) {
    if (lease.attempt === 1) await sleep(LONGER_THAN_ANY_PROOF_MS, undefined, { signal })
  },
} satisfies Handlers

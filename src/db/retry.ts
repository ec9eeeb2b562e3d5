/** Serialization failures and deadlocks: nothing happened, and the same statement may well go through. */
import { setTimeout as sleep } from 'node:timers/promises'

import { isLostRace } from './errors.ts'

const TRIES = 6

export async function retryLostRaces<T>(act: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await act()
    } catch (error) {
      if (!isLostRace(error) || tried === TRIES) throw error
      await sleep(10 * 2 ** tried * Math.random())
    }
  }
}

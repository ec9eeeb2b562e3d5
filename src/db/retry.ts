/** Trying a statement again where that is safe. */
import { setTimeout as sleep } from 'node:timers/promises'

import { DeadlineError, isConnectionError, isLostRace } from './errors.ts'

const TRIES = 6

/** Serialization failures and deadlocks: nothing happened, and the same statement may well go through. */
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

/** For statements that may safely be sent twice: the first query on a connection that died while idle fails. */
export async function onceMore<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await retryLostRaces(act)
  } catch (error) {
    if (!isConnectionError(error) || error instanceof DeadlineError) throw error
    return act()
  }
}

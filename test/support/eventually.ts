/** Waits for a condition instead of for the clock. */
import { setTimeout as sleep } from 'node:timers/promises'

export async function eventually<T>(
  condition: () => Promise<T> | T,
  {
    withinMs = 15_000,
    everyMs = 25,
    what = 'the condition',
  }: { withinMs?: number; everyMs?: number; what?: string } = {},
): Promise<NonNullable<T>> {
  const deadline = performance.now() + withinMs
  let lastError: unknown
  while (performance.now() < deadline) {
    try {
      const value = await condition()
      if (value) return value
    } catch (error) {
      lastError = error
    }
    await sleep(everyMs)
  }
  throw new Error(`${what} did not come true within ${withinMs} ms`, { cause: lastError })
}

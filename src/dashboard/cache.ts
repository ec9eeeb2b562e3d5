/** What many tabs ask for at the same moment is asked of the database once. */
export interface Cache {
  get<T>(key: string, read: () => Promise<T>): Promise<T>
  /** Something was changed by hand: whoever did it must see it. */
  clear(): void
}

/** Different questions that are remembered at once; past that the oldest goes. */
const MOST_KEYS = 200

export function createCache(keepMs: number): Cache {
  const known = new Map<string, { answer: Promise<unknown>; at: number }>()
  return {
    get<T>(key: string, read: () => Promise<T>): Promise<T> {
      const found = known.get(key)
      // While it is under way everybody waits for the same answer; it counts as old from when it came.
      if (found && performance.now() - found.at < keepMs) return found.answer as Promise<T>
      const answer = read()
      const entry = { answer, at: Number.POSITIVE_INFINITY }
      known.delete(key)
      known.set(key, entry)
      answer.then(
        () => {
          entry.at = performance.now()
          // Kept no longer than it is good for: an answer may be large.
          setTimeout(() => known.get(key) === entry && known.delete(key), keepMs).unref()
        },
        () => known.get(key) === entry && known.delete(key),
      )
      const [oldest] = known.keys()
      if (known.size > MOST_KEYS && oldest !== undefined) known.delete(oldest)
      return answer
    },
    clear: () => known.clear(),
  }
}

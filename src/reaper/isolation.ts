/** Finds the rows that break their statement, by bisection, and keeps them aside for a while so that the rest goes on. */
import { mayBeOneRow } from '../db/errors.ts'
import type { ReapedRow } from '../db/reap.ts'

export interface Isolation {
  /** Ids to leave out for now. */
  ids(): string[]
  add(id: string): void
}

/** When more rows than this break in one batch, it is hardly the rows: the rest waits for the next pass. */
const MOST_BROKEN_ROWS = 20

export function createIsolation(holdMs: number): Isolation {
  const until = new Map<string, number>()
  return {
    ids() {
      for (const [id, time] of until) if (time <= performance.now()) until.delete(id)
      return [...until.keys()]
    },
    add: (id) => until.set(id, performance.now() + holdMs),
  }
}

/** Moves every row of `ids` that can be moved and sets the others aside. Throws when nothing could be moved and too much broke. */
export async function moveAllButBroken(
  ids: readonly string[],
  move: (ids: readonly string[]) => Promise<ReapedRow[]>,
  setAside: (id: string, error: unknown) => void,
): Promise<ReapedRow[]> {
  const moved: ReapedRow[] = []
  const parts: (readonly string[])[] = [ids]
  let broken = 0
  for (let part = parts.pop(); part; part = parts.pop()) {
    try {
      if (part.length > 0) moved.push(...(await move(part)))
    } catch (error) {
      if (!mayBeOneRow(error)) throw error
      const [only] = part
      if (part.length > 1) {
        const middle = Math.trunc(part.length / 2)
        parts.push(part.slice(middle), part.slice(0, middle))
      } else if (only !== undefined) {
        setAside(only, error)
        broken += 1
      }
      if (broken < MOST_BROKEN_ROWS) continue
      if (moved.length === 0) throw error
      return moved
    }
  }
  return moved
}

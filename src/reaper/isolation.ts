/** Finds the rows that break their statement, by bisection, and keeps them aside for a while so that the rest goes on. */
import { describeError, mayBeOneRow } from '../db/errors.ts'
import type { ReapedRow } from '../db/reap.ts'
import type { Log } from '../telemetry/log.ts'

export interface Isolation {
  /** Ids to leave out for now. */
  ids(): string[]
  add(id: string): void
}

/** When more rows than this break in one batch, it is not the rows. */
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

/** Moves every row of `ids` that can be moved. Throws the last error when too many cannot. */
export async function moveAllButBroken(
  ids: readonly string[],
  move: (ids: readonly string[]) => Promise<ReapedRow[]>,
  context: { isolation: Isolation; log: Log; table: string },
): Promise<ReapedRow[]> {
  const moved: ReapedRow[] = []
  const broken: { id: string; error: unknown }[] = []
  const parts: (readonly string[])[] = [ids]
  for (let part = parts.pop(); part; part = parts.pop()) {
    if (part.length === 0) continue
    try {
      moved.push(...(await move(part)))
    } catch (error) {
      if (!mayBeOneRow(error)) throw error
      const [only, ...others] = part
      if (only !== undefined && others.length === 0) broken.push({ id: only, error })
      else parts.push(part.slice(part.length / 2), part.slice(0, part.length / 2))
      if (broken.length > MOST_BROKEN_ROWS) throw error
    }
  }
  for (const { id, error } of broken) {
    context.isolation.add(id)
    context.log.error(
      { table: context.table, jobId: id, error: describeError(error) },
      'row set aside: it breaks its statement',
    )
  }
  return moved
}

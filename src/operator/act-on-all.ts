/** All jobs that match a filter, retried or cancelled in small steps. */
import { describeError, mayBeOneRow } from '../db/errors.ts'
import type { JobFilter } from '../db/job-filter.ts'
import { listIds } from '../db/job-view.ts'
import type { Deed } from '../db/operate.ts'
import { refusal, type ServiceResult, success } from '../result.ts'
import {
  type ActCode,
  type BulkAction,
  cleanDeed,
  type Hands,
  move,
  type Moved,
  NO_REASON,
  tell,
  WORDS,
} from './act.ts'
import { orMalformed, type Watched } from './watched.ts'

/** The status an action on all that match begins at. */
export const BULK_STATUS = { retry: 'failed', cancel: 'queued' } as const satisfies Record<
  BulkAction,
  JobFilter['status']
>

/** A job that an action on all could not move, because a constraint or trigger of its table refuses it. */
export interface Refused {
  id: string
  why: string
}

export type OnProgress = (moved: number, refused: readonly Refused[]) => void

/** No call moves more than this; the rest is another call. */
export const MOST_AT_ONCE = 100_000
/** One statement of a bulk action: short enough that nobody waits for its locks. */
const BULK_BATCH = 500
/** When more rows than this are refused, it is hardly the rows. */
const MOST_REFUSED = 20

/**
 * All that match. Which they are is read once and each is tried once, so that a job that fails again while this goes on
 * is not retried for ever. What has changed since, or is locked by somebody else, is passed over.
 */
export async function actOnAll(
  hands: Hands,
  each: Watched,
  action: BulkAction,
  { filter, atMost }: { filter: JobFilter; atMost: number },
  given: Deed,
  onProgress?: OnProgress,
): Promise<ServiceResult<number, ActCode>> {
  const deed = cleanDeed(given)
  if (deed.reason === '') return NO_REASON
  const status = BULK_STATUS[action]
  if (filter.status !== undefined && filter.status !== status) {
    return refusal('NOT_ALLOWED', `${action} of all that match begins at ${status}, and these are ${filter.status}`)
  }
  const limit = Math.min(Math.trunc(atMost), MOST_AT_ONCE)
  if (!(limit > 0)) return success(0)
  const wanted = { ...filter, status }
  const ids = await orMalformed(
    each.handle.use((table) => listIds(hands.db, table, wanted, limit)),
    [],
  )
  const refused: Refused[] = []
  let moved = 0
  for (let from = 0; from < ids.length && refused.length < MOST_REFUSED; from += BULK_BATCH) {
    const batch = ids.slice(from, from + BULK_BATCH)
    const rows = await allButRefused(batch, refused, (some) => moveMany(hands, each, action, some, filter, deed))
    moved += rows.length
    await tell(hands, each, action, rows, deed)
    onProgress?.(moved, refused)
  }
  for (const { id: jobId, why } of refused)
    hands.log.error({ table: each.name, jobId, error: why }, WORDS[action].refused)
  const [first] = refused
  return moved === 0 && first ? refusal('NOT_ALLOWED', `the table refuses it: ${first.why}`) : success(moved)
}

function moveMany(
  { db, maxAttempts }: Hands,
  each: Watched,
  action: BulkAction,
  ids: readonly string[],
  filter: JobFilter,
  deed: Deed,
): Promise<Moved[]> {
  return each.handle.use((table) => move(db, table, action, { ids, filter }, deed, maxAttempts))
}

/** A row that its table refuses is found by halving, noted, and does not keep the others from being moved. */
async function allButRefused(
  ids: readonly string[],
  refused: Refused[],
  move: (ids: readonly string[]) => Promise<Moved[]>,
): Promise<Moved[]> {
  if (ids.length === 0 || refused.length >= MOST_REFUSED) return []
  try {
    return await move(ids)
  } catch (error) {
    if (!mayBeOneRow(error)) throw error
    const [only] = ids
    if (ids.length === 1 && only !== undefined) {
      refused.push({ id: only, why: describeError(error) })
      return []
    }
    const middle = Math.ceil(ids.length / 2)
    const first = await allButRefused(ids.slice(0, middle), refused, move)
    return [...first, ...(await allButRefused(ids.slice(middle), refused, move))]
  }
}

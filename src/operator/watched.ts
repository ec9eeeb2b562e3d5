/** The tables an operator looks after, each with the settings as they apply to it. */
import type { Database } from '../db/client.ts'
import { isMalformedId, isTimeout } from '../db/errors.ts'
import { type TableHandle, tableHandle } from '../db/open-once.ts'
import type { Profile } from '../db/profile.ts'
import type { ReapSettings } from '../db/reap.ts'
import { type GeneralRules, graceSecFor, rulesFor } from '../db/rules.ts'
import { TableRejected } from '../db/table.ts'
import type { ExplainSettings } from './explain.ts'
import { createHistory, type History } from './history.ts'

export interface WatchOptions extends GeneralRules {
  db: Database
  tables: readonly Profile[]
  heartbeatSec: number
  maxAttempts: number
  backoffLadderMs: readonly number[]
  queuedOrphanSec: number
}

export interface Watched {
  name: string
  profile: Profile
  handle: TableHandle
  settings: ReapSettings
  orphanSec: number
  explaining: ExplainSettings
  history: History
}

export function watchTables(options: WatchOptions): Watched[] {
  return options.tables.map((profile) => {
    const { maxAttempts, backoffLadderMs: ladderMs } = options
    const { columns, policy } = profile
    // What the loop of a reaper lost sight of is known to that process alone; a restart of the database everybody sees.
    const outage = { graceSec: graceSecFor(profile, options.heartbeatSec), contactBackAt: null }
    const orphanSec = policy.queuedOrphanSec ?? options.queuedOrphanSec
    return {
      name: profile.table,
      profile,
      handle: tableHandle(options.db, profile),
      settings: { rules: { ...rulesFor(profile, options), outage }, maxAttempts, ladderMs },
      orphanSec,
      explaining: {
        onExpiry: policy.onExpiry,
        backoffLadderMs: ladderMs,
        canRaiseAttempts: columns.maxAttempts !== null,
        hasDueTime: columns.nextRunAt !== null,
        canBeGivenTime: [columns.leaseExpiresAt, columns.heartbeatAt, columns.startedAt].some((each) => each !== null),
        failsUnlessTakenSec: policy.queuedOrphans === 'fail' ? orphanSec : null,
      },
      history: createHistory(profile.table, profile.events?.names ?? null),
    }
  })
}

export function findTable(watched: readonly Watched[], name: string): Watched {
  const found = watched.find((each) => each.name === name)
  if (!found) throw new UnknownTable(name, watched)
  return found
}

/** Asked for a table that is not among those in force. */
export class UnknownTable extends Error {
  constructor(name: string, watched: readonly { name: string }[]) {
    super(`there is no table ${name} here, only ${watched.map((each) => each.name).join(', ')}`)
    this.name = 'UnknownTable'
  }
}

/**
 * The same question to several tables. One that is refused, or too slow to answer, does not keep the others from being
 * seen: the overview says what stands against it. When all of them are, the first says why.
 */
export async function askAll<T>(
  watched: readonly Watched[],
  ask: (each: Watched) => Promise<T>,
): Promise<{ answers: T[]; refusals: unknown[] }> {
  const refusals: unknown[] = []
  const answers = await Promise.all(
    watched.map(async (each) => {
      try {
        return [await ask(each)]
      } catch (error) {
        // One that is locked is in nobody's way but its own either.
        if (!(error instanceof TableRejected) && !isTimeout(error)) throw error
        refusals.push(error)
        return []
      }
    }),
  )
  const [first] = refusals
  if (first && refusals.length === watched.length) throw first
  return { answers: answers.flat(1) as T[], refusals }
}

/** An id that does not even fit the column's type is the id of no job. */
export async function orMalformed<T>(asked: Promise<T>, otherwise: T): Promise<T> {
  try {
    return await asked
  } catch (error) {
    if (isMalformedId(error)) return otherwise
    throw error
  }
}

/** What the reaper would do with a table right now, and why, by the columns it has today. Nothing is locked or written. */
import type { CatalogTable } from './catalog.ts'
import type { Database } from './client.ts'
import { NOW } from './dialect.ts'
import { expiry, type ExpiryRules } from './expiry.ts'
import { lookAt } from './look.ts'
import type { ColumnKey, Profile } from './profile.ts'
import { EVERY_DUE_ROW, previewExpired, type ReapedRow, type ReapSettings } from './reap.ts'
import { list } from './sql.ts'
import { type JobTable, openTable } from './table.ts'

export interface DryRun {
  /** By rule and outcome, most rows first. */
  groups: DryRunGroup[]
  /** There may be more than `limit` rows; counting stopped there. */
  isCut: boolean
  processing: number
  /** Processing, and their time has not run out. */
  leftAlone: number
  /** Nothing in the row tells its age: the reaper gives it a lease first. */
  ungoverned: number
  queued: number
  /** Queued and due for so long that they must have been lost. */
  undispatched: number
}

interface DryRunGroup {
  rule: ReapedRow['rule']
  outcome: ReapedRow['outcome']
  count: number
  examples: {
    id: string
    holder: string | null
    attempt: number
    silentSec: number | null
    overdueSec: number | null
  }[]
}

export const DRY_RUN_LIMIT = 1000
const EXAMPLES = 3

/** The profile as far as the table has its columns today: what the migration will add is not there yet. */
export function asOfToday(profile: Profile, catalog: CatalogTable): Profile {
  const columns = Object.fromEntries(
    Object.entries(profile.columns).map(([key, column]) => [
      key,
      key === 'id' || key === 'status' || (column !== null && catalog.columns.has(column)) ? column : null,
    ]),
  ) as Record<ColumnKey, string | null> & { id: string; status: string }
  return { ...profile, columns, events: null }
}

export async function dryRun(
  db: Database,
  today: Profile,
  { settings, orphanSec }: { settings: ReapSettings; orphanSec: number },
): Promise<DryRun> {
  const table = await openTable(db, today)
  const rows = await previewExpired(db, table, settings, { ...EVERY_DUE_ROW, limit: DRY_RUN_LIMIT })
  const look = await lookAt(db, table, { rules: settings.rules, maxAttempts: settings.maxAttempts, orphanSec })
  const groups = [...Map.groupBy(rows, ({ rule, outcome }) => `${rule} ${outcome}`).values()]
  const shown = groups.flatMap((group) => group.slice(0, EXAMPLES))
  const ages = await readAges(
    db,
    table,
    settings.rules,
    shown.map(({ id }) => id),
  )
  return {
    groups: groups
      .map((group) => ({
        rule: group[0]?.rule ?? 'no_heartbeat',
        outcome: group[0]?.outcome ?? 'failed',
        count: group.length,
        examples: group.slice(0, EXAMPLES).map(({ id, holder, attempt }) => ({
          id,
          holder,
          attempt,
          ...(ages.get(id) ?? { silentSec: null, overdueSec: null }),
        })),
      }))
      .toSorted((a, b) => b.count - a.count),
    isCut: rows.length >= DRY_RUN_LIMIT,
    processing: look.processing,
    leftAlone: look.processing - look.expired,
    ungoverned: look.ungoverned,
    queued: look.queued,
    undispatched: look.undispatched,
  }
}

type Ages = Map<string, { silentSec: number | null; overdueSec: number | null }>

async function readAges(db: Database, table: JobTable, rules: ExpiryRules, ids: string[]): Promise<Ages> {
  if (ids.length === 0) return new Map()
  const { dialect: d } = table
  const rows = await db.query(
    (run) => run<{ id: string; silentSec: number | null; overdueSec: number | null }[]>`
      select ${d.read.id}::text as id,
        case when isfinite(coalesce(row_says.beat, row_says.seen))
          then extract(epoch from ${NOW} - coalesce(row_says.beat, row_says.seen))::float8 end as "silentSec",
        case when isfinite(ends.lh_at) then extract(epoch from ${NOW} - ends.lh_at)::float8 end as "overdueSec"
      from ${d.table} as j
      ${expiry(table, rules)}
      where ${d.read.id} = any(${list(ids)})`,
  )
  return new Map(rows.map(({ id, silentSec, overdueSec }) => [id, { silentSec, overdueSec }]))
}

/** Processing → processing: the holder says it is alive and gets its full lease again. */
import type { Database } from './client.ts'
import { fromNow } from './dialect.ts'
import { type Fragment, list, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface Fence {
  id: string
  holder: string
  attempt: number
}

/** `busy`: somebody else has the row locked just now; the lease is as it was. */
export type Renewal = Fence & { until: Date | null; state: 'renewed' | 'lost' | 'busy' }

type LeaseToRenew = Fence & { leaseSec: number }

/**
 * Renews any number of leases in one statement. Races closed here: a zombie's beat (the fence is judged on the locked
 * version); a lease that is over when it is granted (the lock comes first, the end is computed after it); one locked
 * row costing all others their beat (it is passed over and told as busy, unless the caller would rather wait).
 */
export async function renewLeases(
  db: Database,
  table: JobTable,
  leases: readonly LeaseToRenew[],
  options: { waitForLocks: boolean },
): Promise<Renewal[]> {
  const { dialect: d } = table
  const rows = await db.query(
    (run) => run<{ place: number; until: Date }[]>`
      with mine as materialized (
        ${listed(leases)}
      ), held as materialized (
        select found.lh_id, mine.lh_place, mine.lh_lease_sec
        from mine
        cross join lateral (
          ${byFence(table)}
          for no key update of j ${options.waitForLocks ? sql`` : sql`skip locked`}
        ) as found
      )
      update ${d.table} as j
      set ${d.set({ heartbeatAt: sql`clock_timestamp()`, leaseExpiresAt: fromNow(sql`held.lh_lease_sec`) })}
      from held
      where ${d.read.id} = held.lh_id
      returning held.lh_place::int as place, ${d.read.leaseExpiresAt} as until`,
  )
  const until = new Map(rows.map((row) => [row.place, row.until]))
  const missing = leases.filter((_, n) => !until.has(n + 1))
  const busy = missing.length > 0 ? await stillHeld(db, table, missing) : new Set<LeaseToRenew>()
  return leases.map((lease, n) => {
    const { id, holder, attempt } = lease
    const renewedUntil = until.get(n + 1) ?? null
    const state = renewedUntil ? 'renewed' : busy.has(lease) ? 'busy' : 'lost'
    return { id, holder, attempt, until: renewedUntil, state }
  })
}

/** Of leases that were not renewed: those whose fence still holds were only locked. Asked only when there are any. */
async function stillHeld(db: Database, table: JobTable, leases: readonly LeaseToRenew[]): Promise<Set<LeaseToRenew>> {
  const rows = await db.query(
    (run) => run<{ place: number }[]>`
      with mine as materialized (
        ${listed(leases)}
      )
      select mine.lh_place::int as place
      from mine
      cross join lateral (${byFence(table)} limit 1) as found`,
  )
  return new Set(rows.flatMap(({ place }) => leases[place - 1] ?? []))
}

/**
 * One row at a time by its id: whatever the planner believes about the table, a thousand leases are a thousand look-ups.
 * As a plain join it compared every lease with every running job (40 times as long with 1000 of each).
 */
function byFence({ dialect: d }: JobTable): Fragment {
  return sql`
    select ${d.read.id} as lh_id
    from ${d.table} as j
    where ${d.read.id} = mine.lh_id::${d.idType}
      and ${d.isHeldBy(sql`mine.lh_holder`, sql`mine.lh_attempt`)}`
}

/** In the order of their ids, so that two processes lock common rows in the same order. */
function listed(leases: readonly LeaseToRenew[]): Fragment {
  return sql`
    select *
    from unnest(
      ${list(leases.map((lease) => lease.id))}::text[], ${list(leases.map((lease) => lease.holder))}::text[],
      ${list(leases.map((lease) => lease.attempt))}::bigint[], ${list(leases.map((lease) => lease.leaseSec))}::float8[]
    ) with ordinality as mine(lh_id, lh_holder, lh_attempt, lh_lease_sec, lh_place)
    order by lh_id`
}

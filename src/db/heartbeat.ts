/** Processing → processing: the holder says it is alive and gets its full lease again. */
import type { Database } from './client.ts'
import { fromNow } from './dialect.ts'
import { sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface Fence {
  id: string
  holder: string
  attempt: number
}

/** `busy`: somebody else has the row locked just now; the lease is as it was. */
export type Renewal = {
  id: string
  attempt: number
  holder: string
  until: Date | null
  state: 'renewed' | 'lost' | 'busy'
}

/**
 * Renews any number of leases in one statement. Races closed here: a zombie's beat (the fence is judged on the locked
 * version); a lease that is over when it is granted (the lock comes first, the end is computed after it); one locked
 * row costing all others their beat (it is passed over and told as busy, unless the caller would rather wait).
 */
export async function renewLeases(
  db: Database,
  { dialect: d }: JobTable,
  leases: readonly (Fence & { leaseSec: number })[],
  options: { waitForLocks: boolean },
): Promise<Renewal[]> {
  const ids = leases.map((lease) => lease.id)
  return db.query(
    (run) => run<Renewal[]>`
      with mine as materialized (
        select *
        from unnest(
          ${ids}::text[], ${leases.map((lease) => lease.holder)}::text[],
          ${leases.map((lease) => lease.attempt)}::bigint[], ${leases.map((lease) => lease.leaseSec)}::float8[]
        ) as mine(lh_id, lh_holder, lh_attempt, lh_lease_sec)
      ), held as materialized (
        select ${d.read.id} as lh_id, mine.lh_id as lh_mine, mine.lh_attempt, mine.lh_holder, mine.lh_lease_sec
        from ${d.table} as j
        join mine on mine.lh_id = ${d.read.id}::text
        where ${d.read.id} = any(${ids})
          and ${d.isHeldBy(sql`mine.lh_holder`, sql`mine.lh_attempt`)}
        order by ${d.read.id}
        for no key update of j ${options.waitForLocks ? sql`` : sql`skip locked`}
      ), renewed as (
        update ${d.table} as j
        set ${d.set({ heartbeatAt: sql`clock_timestamp()`, leaseExpiresAt: fromNow(sql`held.lh_lease_sec`) })}
        from held
        where ${d.read.id} = held.lh_id
        returning held.lh_mine, held.lh_attempt, held.lh_holder, ${d.read.leaseExpiresAt} as lh_until
      )
      select mine.lh_id as id, mine.lh_attempt::float8 as attempt, mine.lh_holder as holder, renewed.lh_until as until,
        case
          when renewed.lh_mine is not null then 'renewed'
          when exists (
            select 1
            from ${d.table} as j
            where ${d.read.id} = any(${ids})
              and ${d.read.id}::text = mine.lh_id
              and ${d.isHeldBy(sql`mine.lh_holder`, sql`mine.lh_attempt`)}
          ) then 'busy'
          else 'lost'
        end as state
      from mine
      left join renewed
        on renewed.lh_mine = mine.lh_id and renewed.lh_attempt = mine.lh_attempt and renewed.lh_holder = mine.lh_holder`,
  )
}

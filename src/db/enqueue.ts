/** → queued: a new job together with the first event of its timeline. Teams that insert rows themselves need not use it. */
import type { Database } from './client.ts'
import { join, raw, quoteName, sql } from './sql.ts'
import type { JobTable } from './table.ts'

/** Column names are the table's own; what is left out takes its default. */
export async function insertJob(
  db: Database,
  { dialect: d, profile }: JobTable,
  given: Record<string, unknown>,
): Promise<string> {
  const { id, status } = profile.columns
  const values = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined))
  const names = [status, ...Object.keys(values)].map(quoteName).join(', ')
  const [row] = await db.query(
    (run) => run<{ id: string }[]>`
      with created as (
        insert into ${d.table} (${raw(names)})
        select ${join([d.status.queued, ...Object.keys(values).map((name) => raw(`fresh.${quoteName(name)}`))])}
        from jsonb_populate_record(null::${d.table}, ${run.json(values as never)}) as fresh
        returning ${raw(quoteName(id))} as lh_id
      ), told as (
        ${d.tell({
          jobId: sql`created.lh_id`,
          type: sql`${profile.events?.names.created ?? ''}::text`,
          details: sql`'{}'::jsonb`,
          source: sql`from created`,
        })}
      )
      select lh_id::text as id from created`,
  )
  if (!row) throw new Error(`nothing was inserted into ${profile.table}`)
  return row.id
}

/** Row builders: a job in the state a test needs, with its timestamps moved into the past while the clock stays real. */
import type { Sql } from 'postgres'

export interface JobRow {
  id: string
  status: string
  stage: string | null
  locked_by: string | null
  lease_expires_at: Date | null
  last_heartbeat_at: Date | null
  attempt_count: number | null
  max_attempts: number | null
  next_earliest_run_at: Date | null
  fail_code: string | null
  fail_reason: string | null
  processing_started_at: Date | null
  progress: number
}

export interface EventRow {
  type: string
  table: string
  details: Record<string, unknown>
  at: string
}

/** Columns as SQL expressions, e.g. `{ lease_expires_at: "now() - interval '1 minute'" }`. */
export type Columns = Record<string, string>

export const EXPIRED: Columns = {
  status: `'processing'`,
  locked_by: `'dead-worker'`,
  attempt_count: '1',
  lease_expires_at: `now() - interval '1 minute'`,
  last_heartbeat_at: `now() - interval '2 minutes'`,
  processing_started_at: `now() - interval '5 minutes'`,
}

export const HELD: Columns = {
  ...EXPIRED,
  locked_by: `'live-worker'`,
  lease_expires_at: `now() + interval '1 minute'`,
  last_heartbeat_at: 'now()',
}

export async function insertJob(sql: Sql, table: string, columns: Columns = {}): Promise<string> {
  const names = Object.keys(columns)
  const text =
    names.length === 0
      ? `insert into ${table} default values`
      : `insert into ${table} (${names.join(', ')}) values (${Object.values(columns).join(', ')})`
  const [row] = await sql.unsafe<{ id: string }[]>(`${text} returning id::text as id`)
  if (!row) throw new Error('nothing was inserted')
  return row.id
}

export async function insertMany(sql: Sql, table: string, count: number, columns: Columns = {}): Promise<void> {
  const names = Object.keys(columns)
  await sql.unsafe(
    `insert into ${table} (${names.join(', ')}) select ${Object.values(columns).join(', ')} from generate_series(1, ${count})`,
  )
}

export async function readJob(sql: Sql, table: string, id: string): Promise<JobRow> {
  const [row] = await sql.unsafe<JobRow[]>(`select * from ${table} where id::text = $1`, [id])
  if (!row) throw new Error(`no job ${id} in ${table}`)
  return row
}

export async function readEvents(sql: Sql, id: string): Promise<EventRow[]> {
  const rows = await sql<{ data: EventRow }[]>`select data from job_events where job_id::text = ${id} order by id`
  return rows.map((row) => row.data)
}

export async function eventTypes(sql: Sql, id: string): Promise<string[]> {
  return (await readEvents(sql, id)).map((event) => event.type)
}

export async function countByStatus(sql: Sql, table: string): Promise<Record<string, number>> {
  const rows = await sql.unsafe<{ status: string; count: number }[]>(
    `select status::text as status, count(*)::int as count from ${table} group by 1`,
  )
  return Object.fromEntries(rows.map((row) => [row.status, row.count]))
}

/**
 * An independent witness: triggers that write down every change of a job and every event, with the transaction it
 * happened in. The invariants are checked against this record, never against our own events alone.
 */
import type { Sql } from 'postgres'

import type { Profile } from '../../src/db/profile.ts'
import { quoteLiteral } from '../../src/db/sql.ts'
import { EDGES, type Status, STATUSES } from '../../src/job/status.ts'

export const WITNESS_SQL = `
  create table witness (
    seq bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    tx bigint not null default txid_current(),
    source text not null, op text not null, id text not null, old jsonb, new jsonb);
  create function witness_change() returns trigger language plpgsql as $$
  begin
    insert into witness (source, op, id, old, new)
    values (case when tg_argv[0] = 'job_id' or tg_argv[1] = 'event' then 'job_events' else tg_table_name end, tg_op, coalesce(to_jsonb(new) ->> tg_argv[0], to_jsonb(old) ->> tg_argv[0]), to_jsonb(old), to_jsonb(new));
    return null;
  end $$;
  create trigger witness after insert or update or delete on jobs for each row execute function witness_change('id');
  create trigger witness after insert or update or delete on asr_jobs for each row execute function witness_change('id');
  create trigger witness after insert or update or delete on job_events for each row execute function witness_change('job_id');
`

/** The same trigger for a table a test makes itself. */
export function watchTable(table: string): string {
  return `create trigger witness after insert or update or delete on ${table} for each row execute function witness_change('id')`
}

/** And for a table whose id goes by another name, or for events that stand elsewhere. */
export function watchAs(table: string, idColumn: string, role: 'job' | 'event'): string {
  return `create trigger witness after insert or update or delete on ${table} for each row execute function witness_change(${quoteLiteral(idColumn)}, '${role}')`
}

interface Change {
  seq: string
  at: Date
  tx: string
  source: string
  op: string
  id: string
  old: Row | null
  new: Row | null
}

interface Row {
  status: Status
  locked_by: string | null
  lease_expires_at: string | null
  attempt_count: number | null
  max_attempts: number | null
  next_earliest_run_at: string | null
}

/** Every way in which the record breaks an invariant of the state machine; empty when all is well. */
export async function brokenInvariants(sql: Sql, profile?: Profile): Promise<string[]> {
  const record = await sql<Change[]>`select * from witness order by seq`
  const all = profile ? record.map((change) => inOurWords(change, profile)) : record
  const broken: string[] = []
  const jobs = all.filter((change) => change.source !== 'job_events')
  const events = all.filter((change) => change.source === 'job_events')
  const eventTransactions = new Set(events.map((event) => `${event.tx} ${event.id}`))
  const changeTransactions = new Set(
    jobs.filter((change) => change.old?.status !== change.new?.status).map((change) => `${change.tx} ${change.id}`),
  )

  for (const change of jobs) {
    const where = `${change.source} ${change.id} (#${change.seq})`
    if (change.op === 'DELETE') broken.push(`1: ${where} was deleted`)
    if (change.op !== 'UPDATE' || !change.old || !change.new) continue
    const { old, new: now } = change
    const isMove = old.status !== now.status
    if (isMove && !EDGES[old.status].includes(now.status))
      broken.push(`1: ${where} went from ${old.status} to ${now.status}`)
    if (old.status === 'done') broken.push(`1: ${where} changed after it was done`)
    if (isMove) broken.push(...brokenMoves(where, old, now, change.at))
    if (isMove && !eventTransactions.has(`${change.tx} ${change.id}`))
      broken.push(`7: ${where} changed without an event`)
    const rose = (now.attempt_count ?? 0) - (old.attempt_count ?? 0)
    const isClaim = old.status === 'queued' && now.status === 'processing'
    const isUncountedRecovery =
      old.status === 'processing' &&
      rose === 1 &&
      ((old.attempt_count ?? 0) === 0 ||
        (profile?.policy.countAttempts === 'recovery' && old.lease_expires_at === null))
    if (isClaim ? rose !== 1 : rose !== 0 && !isUncountedRecovery) broken.push(`3: ${where} attempts rose by ${rose}`)
    if (isClaim && (now.attempt_count ?? 0) > Math.max(now.max_attempts ?? 3, 1))
      broken.push(`8: ${where} was claimed too often`)
  }
  const touched = new Set(jobs.map((change) => `${change.tx} ${change.id}`))
  for (const event of events) {
    const told = isAboutStatus(event) ? changeTransactions : isRetryByHand(event) ? touched : null
    if (told && !told.has(`${event.tx} ${event.id}`))
      broken.push(`7: an event of ${event.id} (#${event.seq}) tells of no change`)
  }
  return broken
}

/** A record of a table in another spelling. */
function inOurWords(change: Change, { columns, statuses, events }: Profile): Change {
  if (change.source === 'job_events') {
    const told = change.new as unknown as Record<string, unknown> | null
    return { ...change, new: told && ({ data: told[events?.data ?? ''] } as unknown as Row) }
  }
  const row = (from: Record<string, unknown> | null): Row | null => {
    if (!from) return null
    const read = (column: string | null): never => (column === null ? null : from[column]) as never
    return {
      status: STATUSES.find((status) => statuses[status] === from[columns.status]) ?? read(columns.status),
      locked_by: read(columns.holder),
      lease_expires_at: read(columns.leaseExpiresAt),
      attempt_count: read(columns.attempts),
      max_attempts: read(columns.maxAttempts),
      next_earliest_run_at: read(columns.nextRunAt),
    }
  }
  return { ...change, old: row(change.old as never), new: row(change.new as never) }
}

/** Progress and the team's own events tell of a running attempt, an offer of a waiting job; all others must come with a change of status. */
function isAboutStatus(event: Change): boolean {
  const { type } = (event.new as unknown as { data: { type: string } }).data
  return /^(created|processing|done|failed|retry:|reaper:|requeued:stale|aborted:|operator:(?!retry))/.test(type)
}

/** A retry may find its job queued already, and then only changes when it runs and how often it may. */
function isRetryByHand(event: Change): boolean {
  return (event.new as unknown as { data: { type: string } }).data.type === 'operator:retry'
}

function brokenMoves(where: string, old: Row, now: Row, at: Date): string[] {
  const broken: string[] = []
  if (now.status === 'processing') {
    if (now.locked_by === null || now.lease_expires_at === null)
      broken.push(`2: ${where} is processing without holder or lease`)
    if (now.lease_expires_at !== null && new Date(now.lease_expires_at) <= at)
      broken.push(`2: ${where} got a lease that was over`)
    if (old.next_earliest_run_at !== null && new Date(old.next_earliest_run_at) > at)
      broken.push(`6: ${where} was claimed before it was due`)
  } else if (now.locked_by !== null || now.lease_expires_at !== null) {
    broken.push(`2: ${where} is ${now.status} and still has a holder or a lease`)
  }
  return broken
}

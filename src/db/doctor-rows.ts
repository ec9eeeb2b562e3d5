/** What the doctor reads from a table's rows: leases that are missing, jobs that wait, and traces of another recovery loop. */
import type { Database } from './client.ts'
import type { Finding } from './finding.ts'
import { type Look, lookAt } from './look.ts'
import { type GeneralRules, rulesFor } from './rules.ts'
import { sql } from './sql.ts'
import type { JobTable } from './table.ts'

/** How many rows are held against their events. */
const SAMPLE = 500

interface RowSettings extends GeneralRules {
  maxAttempts: number
  queuedOrphanSec: number
}

export async function examineRows(db: Database, table: JobTable, settings: RowSettings): Promise<Finding[]> {
  const { profile } = table
  const rules = { ...rulesFor(profile, settings), outage: null }
  const orphanSec = profile.policy.queuedOrphanSec ?? settings.queuedOrphanSec
  const look = await lookAt(db, table, { rules, maxAttempts: settings.maxAttempts, orphanSec })
  return [...fromLook(table, look, { ...rules, orphanSec }), ...(await otherRecovery(db, table))]
}

function fromLook(
  { name: table, profile }: JobTable,
  look: Look,
  times: { leaseTimeoutSec: number; nullLeaseSec: number; orphanSec: number },
): Finding[] {
  const findings: Finding[] = []
  const say = (level: Finding['level'], place: string, what: string, follows: string, mend: string | null): number =>
    findings.push({ level, table, place, what, follows, mend })
  const withoutLease = look.processing - look.held
  if (withoutLease > 0) {
    const follows = `a heartbeat older than ${times.leaseTimeoutSec} s, or without one a start longer ago than ${times.nullLeaseSec} s, ends them`
    say(
      'note',
      'rows',
      `${withoutLease} of ${look.processing} processing jobs have no lease: older workers hold them`,
      follows,
      null,
    )
  }
  if (look.expired > 0) {
    const outcome = profile.policy.onExpiry === 'fail' ? 'failed' : 'requeued, or failed where no attempt is left'
    say('note', 'rows', `${look.expired} processing jobs have run out`, `the next pass takes them: ${outcome}`, null)
  }
  if (look.undispatched > 0) {
    const mend = 'start a worker for them; with a dispatcher, look at QUEUE_PROVIDER'
    say(
      'warning',
      'rows',
      `${look.undispatched} jobs have been due for over ${times.orphanSec} s`,
      'nobody takes them',
      mend,
    )
  }
  return findings
}

interface Trace {
  rose: number
  putBack: number
  example: string | null
}

/**
 * Our own claims and returns leave events. Attempts above the last claim we told of, or a job that is queued again
 * without a word of ours, are somebody else's doing.
 */
async function otherRecovery(db: Database, table: JobTable): Promise<Finding[]> {
  const { dialect: d, profile } = table
  const names = profile.events?.names
  if (!names || profile.columns.attempts === null) return []
  const told = d.toldBy(sql`sample.lh_id`)
  const [trace] = await db.query(
    (run) => run<Trace[]>`
      select count(*) filter (where attempts > claimed)::int as rose,
        count(*) filter (where is_queued and attempts = claimed and not returned)::int as "putBack",
        (min(id) filter (where attempts > claimed or is_queued and attempts = claimed and not returned)) as example
      from (
        select sample.lh_id::text as id, sample.attempts, sample.is_queued,
          (select max(told.attempt) from (${told}) as told where told.type = ${names.processing}::text) as claimed,
          exists (select 1 from (${told}) as told
            where told.attempt = sample.attempts
              and told.type in (${names.retry}::text, ${names.reaperRequeued}::text, ${names.aborted}::text,
                ${names.operatorRetry}::text, ${names.operatorEndedLease}::text)) as returned
        from (
          select ${d.read.id} as lh_id, ${d.attempts} as attempts, ${d.read.status} = ${d.status.queued} as is_queued
          from ${d.table} as j
          where ${d.read.status} in (${d.status.queued}, ${d.status.processing})
            and ${d.attempts} > 0
          limit ${SAMPLE}
        ) as sample
      ) as seen
      where claimed is not null`,
  )
  if (!trace || trace.rose + trace.putBack === 0) return []
  const what = [
    ...(trace.rose > 0 ? [`${trace.rose} jobs have more attempts than we told of`] : []),
    ...(trace.putBack > 0 ? [`${trace.putBack} jobs were queued again without a word of ours`] : []),
  ]
  return [
    {
      level: 'warning',
      table: table.name,
      place: 'rows',
      what: `another recovery loop seems to write to this table: ${what.join(', ')} (e.g. ${trace.example?.slice(0, 80)})`,
      follows: 'attempts are counted twice, and a job may be taken from a healthy worker by the other loop',
      mend: 'stop the old cron, reconciler or retry job that updates this table',
    },
  ]
}

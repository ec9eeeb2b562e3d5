/** Who works, as far as their leases tell; and what a deploy right now would interrupt. */
import type { Plan, Workers } from '../answers.ts'
import { withQuery } from '../api.ts'
import { duration } from '../../../job/duration.ts'
import { useLive } from '../live.ts'
import { JobLink, Span, Table, Text, Trouble } from '../parts/show.tsx'

type Holder = Workers[number]['holders'][number]

export function WorkersPage(): preact.JSX.Element {
  const { data, error } = useLive<Workers>('/api/workers')
  const holders = (data ?? []).flatMap(({ table, holders: all }) => all.map((holder) => ({ table, ...holder })))
  return (
    <>
      <p class="lead">
        Whoever holds a running job, those first whose jobs are reaped next. An idle worker holds nothing and is not
        seen here.
      </p>
      <Trouble error={error} hasData={data !== null} />
      {data !== null && holders.length === 0 && <p>Nobody holds a job.</p>}
      {holders.length > 0 && (
        <Table
          caption="Workers"
          head={['Held by', 'Table', 'Jobs', 'Stages', 'Last heartbeat', 'Busy for', 'First ends']}
        >
          {holders.map((holder) => (
            <HolderRow key={`${holder.table} ${holder.holder}`} holder={holder} />
          ))}
        </Table>
      )}
      <DrainPlan />
    </>
  )
}

function HolderRow({ holder: each }: { holder: Holder & { table: string } }): preact.JSX.Element {
  const { table, holder, jobs, stages, silentSec, busySec, endsInSec, expired } = each
  return (
    <tr>
      <th scope="row">
        <Text>{holder ?? 'nobody known'}</Text>
      </th>
      <td data-label="Table">{table}</td>
      <td data-label="Jobs">
        <a href={withQuery('/leases', { table, holder })}>{jobs}</a>
        {expired > 0 && <span class="mark">{expired} out of time</span>}
      </td>
      <td data-label="Stages">
        <Text>{stages.map((stage) => stage ?? 'none').join(', ')}</Text>
      </td>
      <td data-label="Last heartbeat">
        {silentSec === null ? <span class="muted">never</span> : `${duration(silentSec)} ago`}
      </td>
      <td data-label="Busy for">
        <Span sec={busySec} />
      </td>
      <td data-label="First ends">
        {endsInSec === null ? (
          <span class="muted">–</span>
        ) : endsInSec > 0 ? (
          `in ${duration(endsInSec)}`
        ) : (
          `over for ${duration(-endsInSec)}`
        )}
      </td>
    </tr>
  )
}

const OUTCOMES = { finishes: 'ends in time', 'given back': 'is given back', unknown: 'nobody knows' } as const

function DrainPlan(): preact.JSX.Element | null {
  const { data, error } = useLive<Plan>('/api/drain', 3)
  if (data === null) return <Trouble error={error} hasData={false} />
  const { shutdownTimeoutSec, jobs, finishes, givenBack, unknown, lostSec, isCut } = data
  return (
    <section>
      <h2>If you deployed now</h2>
      <p class="lead">
        {jobs.length === 0
          ? 'Nothing that still has time would be interrupted.'
          : `Workers get ${duration(shutdownTimeoutSec)}. ${finishes} would end in time, ${givenBack} would be given back and begin anew without losing an attempt, of ${unknown} nobody knows. At most ${duration(lostSec)} of work would be done again.${isCut ? ' More is running than was looked at.' : ''}`}
      </p>
      {jobs.length > 0 && (
        <Table caption="Running jobs at a deploy" head={['Job', 'Stage', 'Running for', 'Left', 'Outcome']}>
          {jobs.map((job) => (
            <tr key={`${job.table} ${job.id}`}>
              <th scope="row">
                <JobLink job={job} /> <small>{job.table}</small>
              </th>
              <td data-label="Stage">
                <Text>{job.stage}</Text>
              </td>
              <td data-label="Running for">
                <Span sec={job.runningSec} />
              </td>
              <td data-label="Left">
                <Span sec={job.remainingSec} />
              </td>
              <td data-label="Outcome">{OUTCOMES[job.outcome]}</td>
            </tr>
          ))}
        </Table>
      )}
    </section>
  )
}

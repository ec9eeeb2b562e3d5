/** Every running job by what is reaped next: who has it, and how much of its time is left. */
import { useContext } from 'preact/hooks'

import { go } from '../address.ts'
import type { Job, LeasesAnswer } from '../answers.ts'
import { withQuery } from '../api.ts'
import { useLive, useSeconds, useServerClock } from '../live.ts'
import { LeaseBar } from '../parts/lease-bar.tsx'
import { JobLink, Moment, Table, Text, Trouble } from '../parts/show.tsx'
import { SessionContext } from '../session.ts'

/** As many as the server sends at once. */
const MOST = 500

export function LeasesPage({ query }: { query: URLSearchParams }): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  const [table, holder] = [query.get('table') ?? undefined, query.get('holder') ?? undefined]
  const { data, error } = useLive<LeasesAnswer>(withQuery('/api/leases', { table, holder }))
  useSeconds()
  const leases = data?.leases ?? []
  // By the database's clock: this process's own may be wrong.
  const now = useServerClock(leases[0]?.now)
  return (
    <>
      <p class="lead">
        {holder === undefined
          ? 'Running jobs, what is reaped next first.'
          : `Running jobs of ${holder || 'nobody known'}. `}
        {holder !== undefined && <a href={withQuery('/leases', { table })}>Show all</a>}
      </p>
      {session.tables.length > 1 && (
        <label class="filter">
          Table
          <select
            value={table ?? ''}
            onChange={(event) => go(withQuery('/leases', { table: event.currentTarget.value || undefined, holder }))}
          >
            <option value="">all</option>
            {session.tables.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
      <Trouble error={error} hasData={data !== null} />
      {data !== null && leases.length === 0 && <p>Nothing is running.</p>}
      {leases.length > 0 && (
        <Table
          caption="Running jobs"
          head={['Job', 'Stage', 'Time left', 'Held by', 'Attempt', 'Last heartbeat', 'Progress']}
        >
          {leases.map((job) => (
            <LeaseRow key={`${job.table} ${job.id}`} job={job} now={now} />
          ))}
        </Table>
      )}
      {leases.length >= MOST && <p class="muted">There are more; these {MOST} end first.</p>}
    </>
  )
}

function LeaseRow({ job, now }: { job: Job; now: number }): preact.JSX.Element {
  return (
    <tr>
      <th scope="row">
        <JobLink job={job} /> <small>{job.table}</small>
      </th>
      <td data-label="Stage">
        <Text>{job.stage}</Text>
      </td>
      <td data-label="Time left">
        <LeaseBar job={job} now={now} />
      </td>
      <td data-label="Held by">
        <Text>{job.holder}</Text>
      </td>
      <td data-label="Attempt">
        {job.attempt} of {job.maxAttempts}
      </td>
      <td data-label="Last heartbeat">
        <Moment at={job.heartbeatAt} now={now} />
      </td>
      <td data-label="Progress">
        {job.progress === null ? <span class="muted">–</span> : `${Math.round(job.progress)} %`}
      </td>
    </tr>
  )
}

/** One job: where it is and why, what happens next, what can be done; then each attempt, all that was told, and the row itself. */
import type { Details } from '../answers.ts'
import { withQuery } from '../api.ts'
import { useLive, useSeconds, useServerClock } from '../live.ts'
import { JobActions } from '../parts/act.tsx'
import { LeaseBar } from '../parts/lease-bar.tsx'
import { Moment, plain, Span, StatusBadge, Table, Text, Trouble, utc } from '../parts/show.tsx'

export function JobPage({ table, id }: { table: string; id: string }): preact.JSX.Element {
  const { data, error, refresh } = useLive<Details>(withQuery('/api/job', { table, id }))
  useSeconds()
  const now = useServerClock(data?.job.now)
  if (data === null) return <Trouble error={error} hasData={false} />
  const { job, explanation, attempts, timeline, fields } = data
  return (
    <>
      <Trouble error={error} hasData />
      <h2 class="job-title">
        <span class="id">{job.id}</span> <StatusBadge job={job} />
        <small>
          {job.table}
          {job.stage === null ? '' : `, stage ${job.stage}`}
        </small>
      </h2>
      <section class="explanation" aria-label="What is, and what happens next">
        <p class="sentence">{capital(explanation.now)}.</p>
        {hasMore(data) && <p class="text reason">{job.failReason}</p>}
        <p>Next: {plain(explanation.next)}.</p>
        {explanation.advice !== null && (
          <p class="advice">
            {capital(explanation.advice)}
            {/[?.]$/.test(explanation.advice) ? '' : '.'}
          </p>
        )}
        {job.status === 'processing' && <LeaseBar job={job} now={now} />}
        <JobActions job={job} actions={explanation.actions} onDone={refresh} />
      </section>
      <Attempts attempts={attempts} now={now} />
      <Timeline timeline={timeline} now={now} />
      <details class="fields">
        <summary>The row as it stands in {job.table}</summary>
        <Table caption="Columns of the row" head={['Column', 'Value']}>
          {fields.map(({ name, value, isCut }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td data-label="Value">
                {value === null ? <span class="muted">null</span> : <span class="text">{value}</span>}
                {isCut && <span class="muted"> … cut</span>}
              </td>
            </tr>
          ))}
        </Table>
      </details>
    </>
  )
}

function Attempts({ attempts, now }: { attempts: Details['attempts']; now: number }): preact.JSX.Element | null {
  if (attempts.length === 0) return null
  return (
    <section>
      <h3>Attempts</h3>
      <Table caption="Attempts" head={['Attempt', 'Held by', 'Began', 'Took', 'Ended with', 'Why']}>
        {attempts.map(({ attempt, holder, startedAt, durationSec, end, code, reason }) => (
          <tr key={attempt}>
            <th scope="row">{attempt}</th>
            <td data-label="Held by">
              <Text>{holder}</Text>
            </td>
            <td data-label="Began">
              <Moment at={startedAt} now={now} />
            </td>
            <td data-label="Took">
              <Span sec={durationSec} />
            </td>
            <td data-label="Ended with">
              <Text>{end}</Text>
            </td>
            <td data-label="Why" class="why">
              <Text>{[code, reason === code ? null : reason].filter((text) => text !== null).join(': ')}</Text>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  )
}

function Timeline({ timeline, now }: { timeline: Details['timeline']; now: number }): preact.JSX.Element {
  return (
    <section>
      <h3>Timeline</h3>
      {timeline.length === 0 && <p class="muted">No events.</p>}
      <ol class="timeline">
        {timeline.map(({ type, at, details }, place) => (
          <li key={`${at ?? ''} ${type} ${place}`}>
            <span class="text type">{type}</span>{' '}
            {at === null ? null : Number.isNaN(Date.parse(at)) ? (
              <span class="muted text">{at}</span>
            ) : (
              <Moment at={at} now={now} />
            )}
            <dl>
              {Object.entries(details)
                .filter(([, value]) => value !== null)
                .map(([key, value]) => (
                  <div key={key}>
                    <dt>{key}</dt>
                    <dd class="text">{told(key, value)}</dd>
                  </div>
                ))}
            </dl>
          </li>
        ))}
      </ol>
    </section>
  )
}

function told(key: string, value: unknown): string {
  if (typeof value === 'string') return key === 'due' ? utc(value) : value
  return JSON.stringify(value)
}

/** The sentence may have the first line of it only. */
function hasMore({ job, explanation }: Details): boolean {
  return job.status === 'failed' && job.failReason !== null && !explanation.now.includes(job.failReason.trim())
}

function capital(text: string): string {
  return plain(text.charAt(0).toUpperCase() + text.slice(1))
}

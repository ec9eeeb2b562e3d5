/** Jobs by status, stage, code and holder. The filter stands in the address; the pages go by id, newest first. */
import { useContext } from 'preact/hooks'

import { go } from '../address.ts'
import type { Job, JobsAnswer } from '../answers.ts'
import { withQuery } from '../api.ts'
import { useLive, useServerClock } from '../live.ts'
import { BulkAction } from '../parts/act.tsx'
import { fieldsOf } from '../parts/fields.ts'
import { JobLink, Moment, StatusBadge, Table, Text, Trouble } from '../parts/show.tsx'
import { SessionContext } from '../session.ts'

const KEYS = ['status', 'stage', 'code', 'holder'] as const
type Filter = Partial<Record<(typeof KEYS)[number], string>>

/** A bulk action begins at this status. */
const BULK: Record<string, 'retry' | 'cancel'> = { failed: 'retry', queued: 'cancel' }

export function JobsPage({ query }: { query: URLSearchParams }): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  const table = query.get('table') ?? session.tables[0] ?? ''
  const filter: Filter = Object.fromEntries(
    KEYS.flatMap((key) => (query.has(key) ? [[key, query.get(key) ?? '']] : [])),
  )
  const after = query.get('after') ?? undefined
  const jobs = useLive<JobsAnswer>(withQuery('/api/jobs', { table, ...filter, after }))
  const rows = jobs.data?.jobs ?? []
  const now = useServerClock(rows[0]?.now)
  const next = jobs.data?.next ?? null
  return (
    <>
      <FilterForm key={query.toString()} table={table} tables={session.tables} filter={filter} />
      <Trouble error={jobs.error} hasData={jobs.data !== null} />
      <Matching table={table} filter={filter} onDone={jobs.refresh} />
      {jobs.data !== null && rows.length === 0 && <p>No job matches.</p>}
      {rows.length > 0 && (
        <Table caption={`Jobs of ${table}`} head={['Job', 'Status', 'Stage', 'Attempt', 'Why', 'When']}>
          {rows.map((job) => (
            <JobRow key={job.id} job={job} now={now} />
          ))}
        </Table>
      )}
      <nav class="pages" aria-label="Pages">
        {after !== undefined && <a href={withQuery('/jobs', { table, ...filter })}>First page</a>}
        {next !== null && <a href={withQuery('/jobs', { table, ...filter, after: next })}>Next page</a>}
      </nav>
    </>
  )
}

/** How many match, and what can be done to all of them. */
function Matching({
  table,
  filter,
  onDone,
}: {
  table: string
  filter: Filter
  onDone: () => void
}): preact.JSX.Element | null {
  const { data, refresh } = useLive<{ count: number }>(withQuery('/api/count', { table, ...filter }), 5)
  const action = BULK[filter.status ?? '']
  if (data === null) return null
  const { status: _, ...rest } = filter
  const which = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, value === '' ? null : value]))
  return (
    <div class="matching">
      <p>
        {data.count >= 100_000 ? 'More than 100,000 match' : `${data.count} ${data.count === 1 ? 'matches' : 'match'}`}
      </p>
      {action && data.count > 0 && (
        <BulkAction
          {...{ action, table }}
          filter={which}
          count={data.count}
          onDone={() => {
            refresh()
            onDone()
          }}
        />
      )}
    </div>
  )
}

function FilterForm({
  table,
  tables,
  filter,
}: {
  table: string
  tables: string[]
  filter: Filter
}): preact.JSX.Element {
  function apply(event: Event): void {
    event.preventDefault()
    const given = fieldsOf(event)
    go(
      withQuery('/jobs', {
        table: given.table,
        ...Object.fromEntries(KEYS.map((key) => [key, given[key] || undefined])),
      }),
    )
  }
  return (
    <form class="filters" onSubmit={apply}>
      <label>
        Table
        <select name="table" value={table} onChange={apply}>
          {tables.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Status
        <select name="status" value={filter.status ?? ''} onChange={apply}>
          <option value="">any</option>
          {['queued', 'processing', 'failed', 'done'].map((status) => (
            <option key={status} value={status}>
              {status}
            </option>
          ))}
        </select>
      </label>
      <Field name="stage" title="Stage" value={filter.stage} />
      <Field name="code" title="Code" value={filter.code} />
      <Field name="holder" title="Held by" value={filter.holder} />
      <button>Show</button>
    </form>
  )
}

function Field({ name, title, value }: { name: string; title: string; value: string | undefined }): preact.JSX.Element {
  return (
    <label>
      {title}
      <input
        name={name}
        value={value ?? ''}
        placeholder={value === '' ? 'none' : 'any'}
        autocomplete="off"
        spellcheck={false}
      />
    </label>
  )
}

function JobRow({ job, now }: { job: Job; now: number }): preact.JSX.Element {
  const { status, failCode, failReason, holder, dueAt, isDue, endsAt, startedAt } = job
  const why =
    status === 'failed'
      ? [failCode, failReason === failCode ? null : failReason].filter((text) => text !== null).join(': ')
      : status === 'processing'
        ? holder
        : failCode
  return (
    <tr>
      <th scope="row">
        <JobLink job={job} />
      </th>
      <td data-label="Status">
        <StatusBadge job={job} />
      </td>
      <td data-label="Stage">
        <Text>{job.stage}</Text>
      </td>
      <td data-label="Attempt">
        {job.attempt} of {job.maxAttempts}
      </td>
      <td data-label="Why" class="why">
        <Text>{why}</Text>
      </td>
      <td data-label="When">
        {status === 'processing' ? (
          <>
            ends <Moment at={endsAt} now={now} />
          </>
        ) : status === 'queued' ? (
          <>
            {isDue ? 'due' : 'runs'} <Moment at={dueAt} now={now} />
          </>
        ) : (
          startedAt && (
            <>
              began <Moment at={startedAt} now={now} />
            </>
          )
        )}
      </td>
    </tr>
  )
}

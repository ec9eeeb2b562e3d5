/** Jobs by status, stage, code and holder. The filter stands in the address; the pages go by id, newest first. */
import { useContext, useEffect, useState } from 'preact/hooks'

import { go } from '../address.ts'
import type { Job, JobsAnswer } from '../answers.ts'
import { withQuery } from '../api.ts'
import { useLive, useServerClock } from '../live.ts'
import { BulkButton } from '../parts/act.tsx'
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
      <FilterForm table={table} tables={session.tables} filter={filter} />
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
        {data.count >= 100_000 ? '100,000 or more match' : `${data.count} ${data.count === 1 ? 'matches' : 'match'}`}
      </p>
      {action && (
        <BulkButton
          group={{ action, table, filter: which, count: data.count }}
          onDone={() => {
            refresh()
            onDone()
          }}
        />
      )}
    </div>
  )
}

/** What is typed is kept here until it is applied: the page is renewed meanwhile, and must not take it away. */
function FilterForm({
  table,
  tables,
  filter,
}: {
  table: string
  tables: string[]
  filter: Filter
}): preact.JSX.Element {
  const inForce = { table, ...Object.fromEntries(KEYS.map((key) => [key, filter[key] === '' ? NONE : filter[key]])) }
  const [draft, setDraft] = useState<Draft>(inForce)
  useEffect(() => setDraft(inForce), [JSON.stringify(inForce)])
  function apply({ table: chosen, ...given }: Draft): void {
    const fields = KEYS.map((key) => [key, given[key] === NONE ? null : given[key]?.trim() || undefined])
    go(withQuery('/jobs', { table: chosen, ...Object.fromEntries(fields) }))
  }
  const field = (name: keyof Draft) => ({
    name,
    value: draft[name] ?? '',
    onInput: (event: Event): void => setDraft({ ...draft, [name]: (event.currentTarget as HTMLInputElement).value }),
  })
  /** A choice is applied at once. */
  const choice = (name: keyof Draft) => ({
    name,
    value: draft[name] ?? '',
    onChange: (event: Event): void => apply({ ...draft, [name]: (event.currentTarget as HTMLSelectElement).value }),
  })
  return (
    <form
      class="filters"
      onSubmit={(event) => {
        event.preventDefault()
        apply(draft)
      }}
    >
      <label>
        Table
        <select {...choice('table')}>
          {tables.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Status
        <select {...choice('status')}>
          <option value="">any</option>
          {['queued', 'processing', 'failed', 'done'].map((status) => (
            <option key={status} value={status}>
              {status}
            </option>
          ))}
        </select>
      </label>
      {TYPED.map(([name, title]) => (
        <label key={name}>
          {title}
          <input {...field(name)} placeholder="any" autocomplete="off" spellcheck={false} />
        </label>
      ))}
      <button>Show</button>
    </form>
  )
}

type Draft = { table: string } & Filter
/** Stands in a field for "those that have none", which an empty field does not mean. */
const NONE = '(none)'
const TYPED = [
  ['stage', 'Stage'],
  ['code', 'Code'],
  ['holder', 'Held by'],
] as const

function JobRow({ job, now }: { job: Job; now: number }): preact.JSX.Element {
  const { status, failCode, failReason, holder, dueAt, isDue, endsAt, changedAt } = job
  const isOver = endsAt !== null && Date.parse(endsAt) <= now
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
            {isOver ? 'ended' : 'ends'} <Moment at={endsAt} now={now} />
          </>
        ) : status === 'queued' ? (
          <>
            {isDue ? 'due' : 'runs'} <Moment at={dueAt} now={now} />
          </>
        ) : (
          <Moment at={changedAt} now={now} />
        )}
      </td>
    </tr>
  )
}

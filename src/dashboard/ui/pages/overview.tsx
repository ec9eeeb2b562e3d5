/** Is anything stuck? One sentence first, then each table in numbers, each number a way to what is behind it. */
import type { History, OverviewAnswer } from '../answers.ts'
import { withQuery } from '../api.ts'
import { duration } from '../../../job/duration.ts'
import { useLive } from '../live.ts'
import { Plot } from '../parts/plot.tsx'
import { number, plain, Trouble } from '../parts/show.tsx'

type TableNumbers = OverviewAnswer['tables'][number]

const SIGNS = { ok: '✓', attention: '!', unhealthy: '✕' } as const

export function OverviewPage(): preact.JSX.Element {
  const { data, error } = useLive<OverviewAnswer>('/api/overview')
  if (data === null) return <Trouble error={error} hasData={false} />
  const { health, tables, history } = data
  return (
    <>
      <Trouble error={error} hasData />
      <section class={`health ${health.level}`} aria-label="Health">
        <p class="sentence">
          <span class="sign" aria-hidden="true">
            {SIGNS[health.level]}
          </span>
          {plain(health.sentence)}
        </p>
        {health.details.length > 1 && (
          <ul>
            {health.details.slice(1).map(({ text }) => (
              <li key={text}>{plain(text)}</li>
            ))}
          </ul>
        )}
      </section>
      <div class="cards">
        {tables.map((table) => (
          <TableCard
            key={table.table}
            numbers={table}
            history={history.find((each) => each.table === table.table) ?? null}
          />
        ))}
      </div>
    </>
  )
}

function TableCard({ numbers, history }: { numbers: TableNumbers; history: History | null }): preact.JSX.Element {
  const { table, obstacle } = numbers
  return (
    <section class="card" aria-labelledby={`table-${table}`}>
      <h2 id={`table-${table}`}>{table}</h2>
      {obstacle === null ? <Numbers numbers={numbers} /> : <p role="alert">{obstacle}</p>}
      {obstacle === null && history && <Plots history={history} waiting={numbers.queued} />}
    </section>
  )
}

/** Counts stop at this many, so that a look stays cheap on any table. */
const CAP = 100_000

function Numbers({ numbers }: { numbers: TableNumbers }): preact.JSX.Element {
  const { table, queued, due, processing, expired, failed, done, oldestDueSec, nextDeadlineSec } = numbers
  const jobs = (status: string): string => withQuery('/jobs', { table, status })
  const most = (value: number): string => (value >= CAP ? `${number(CAP)}+` : number(value))
  return (
    <dl class="numbers">
      <Figure
        name="queued"
        href={jobs('queued')}
        value={most(queued)}
        note={due === queued ? '' : `${most(due)} due`}
      />
      <Figure
        name="processing"
        href={withQuery('/leases', { table })}
        value={most(processing)}
        note={nextDeadlineSec === null ? '' : `first ends in ${duration(nextDeadlineSec)}`}
      />
      <Figure
        name="out of time"
        href={withQuery('/leases', { table })}
        value={most(expired)}
        note=""
        tone={expired > 0 ? 'bad' : ''}
      />
      <Figure name="failed" href={jobs('failed')} value={most(failed)} note="" tone={failed > 0 ? 'warn' : ''} />
      <Figure name="done" href={jobs('done')} value={`~${number(done)}`} note="" />
      <Figure
        name="oldest due"
        href={jobs('queued')}
        value={oldestDueSec === null ? '–' : duration(oldestDueSec)}
        note=""
        tone={numbers.undispatched > 0 ? 'warn' : ''}
      />
    </dl>
  )
}

function Figure(props: { name: string; value: string; note: string; href: string; tone?: string }): preact.JSX.Element {
  return (
    <div class={props.tone ?? ''}>
      <dt>{props.name}</dt>
      <dd>
        <a href={props.href}>{props.value}</a>
        {props.note !== '' && <small>{props.note}</small>}
      </dd>
    </div>
  )
}

function Plots({ history, waiting }: { history: History; waiting: number }): preact.JSX.Element {
  const { minutes, hasEvents } = history
  const at = minutes.map(({ minute }) => minute)
  const sum = (values: number[]): string => `${number(values.reduce((all, value) => all + value, 0))} in the last hour`
  const queued = minutes.map((minute) => minute.queued)
  const [done, requeued, failed] = [
    minutes.map((each) => each.done),
    minutes.map((each) => each.requeued),
    minutes.map((each) => each.failed),
  ]
  return (
    <div class="plots">
      <Plot title="Waiting" tone="plain" minutes={at} values={queued} summary={`${number(waiting)} now`} />
      {hasEvents && (
        <>
          <Plot title="Done" tone="good" minutes={at} values={done} summary={sum(done)} />
          <Plot title="Requeued" tone="warn" minutes={at} values={requeued} summary={sum(requeued)} />
          <Plot title="Failed" tone="bad" minutes={at} values={failed} summary={sum(failed)} />
        </>
      )}
    </div>
  )
}

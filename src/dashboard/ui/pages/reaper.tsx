/** Who watches the reaper: its last passes, what it would do right now, and every setting with where it came from. */
import { useContext, useState } from 'preact/hooks'

import type { Pass, PreviewAnswer, ReaperAnswer } from '../answers.ts'
import { ApiError, ask, withQuery } from '../api.ts'
import { useLive, useSeconds, useServerClock } from '../live.ts'
import { JobLink, Moment, Table, Text, Trouble } from '../parts/show.tsx'
import { SessionContext } from '../session.ts'

export function ReaperPage(): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  const { data, error } = useLive<ReaperAnswer>('/api/reaper')
  useSeconds()
  const now = useServerClock(data?.now)
  if (data === null) return <Trouble error={error} hasData={false} />
  const { latest, eventful, settings } = data
  return (
    <>
      <Trouble error={error} hasData />
      <section>
        <h2>Passes</h2>
        {latest === null && (
          <p>
            No reaper runs in this process, so its passes are not known here. Whether one runs anywhere is seen on the
            overview: nothing stays out of time.
          </p>
        )}
        {latest !== null && <Passes title="Last passes" passes={latest.slice(0, 10)} now={now} />}
        {eventful !== null && eventful.length > 0 && (
          <Passes title="Last passes that moved something or broke" passes={eventful} now={now} />
        )}
      </section>
      <section>
        <h2>What a pass would do now</h2>
        {session.tables.map((table) => (
          <Preview key={table} table={table} />
        ))}
      </section>
      <section>
        <h2>Settings</h2>
        <Table caption="Settings in force" head={['Variable', 'Value', 'From', 'Effect']}>
          {settings.map(({ name, value, source, overruled, help }) => (
            <tr key={name}>
              <th scope="row">
                <code>{name}</code>
              </th>
              <td data-label="Value">
                <Text>{value}</Text>
              </td>
              <td data-label="From">
                {source}
                {overruled.length > 0 && <small> beats {overruled.join(', ')}</small>}
              </td>
              <td data-label="Effect">{help}</td>
            </tr>
          ))}
        </Table>
      </section>
    </>
  )
}

function Passes({ title, passes, now }: { title: string; passes: Pass[]; now: number }): preact.JSX.Element {
  return (
    <>
      <h3>{title}</h3>
      {passes.length === 0 && <p>None yet.</p>}
      {passes.length > 0 && (
        <Table caption={title} head={['When', 'Table', 'Outcome', 'Took', 'Requeued', 'Failed']}>
          {passes.map((pass, place) => (
            <tr key={`${pass.at} ${pass.table} ${place}`}>
              <th scope="row">
                <Moment at={pass.at} now={now} />
              </th>
              <td data-label="Table">{pass.table}</td>
              <td data-label="Outcome">
                {pass.outcome}
                {pass.obstacle !== null && <span class="why text"> {pass.obstacle}</span>}
              </td>
              <td data-label="Took">{Math.round(pass.tookMs)} ms</td>
              <td data-label="Requeued">{pass.requeued}</td>
              <td data-label="Failed">{pass.failed}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  )
}

function Preview({ table }: { table: string }): preact.JSX.Element {
  const [answer, setAnswer] = useState<PreviewAnswer | null>(null)
  const [problem, setProblem] = useState('')
  async function look(): Promise<void> {
    try {
      setAnswer(await ask<PreviewAnswer>(withQuery('/api/preview', { table })))
      setProblem('')
    } catch (error) {
      setProblem(error instanceof ApiError ? error.message : String(error))
    }
  }
  return (
    <div class="preview">
      <p>
        <button type="button" onClick={() => void look()}>
          Look at {table}
        </button>{' '}
        <span aria-live="polite">
          {answer !== null &&
            (answer.rows.length === 0
              ? 'Nothing: no job is out of time.'
              : `${answer.rows.length} jobs would be moved.`)}
        </span>
      </p>
      {problem !== '' && <p role="alert">{problem}</p>}
      {answer !== null && answer.rows.length > 0 && (
        <Table
          caption={`What a pass over ${table} would do`}
          head={['Job', 'Outcome', 'Rule', 'Stage', 'Held by', 'Attempt']}
        >
          {answer.rows.map((row) => (
            <tr key={row.id}>
              <th scope="row">
                <JobLink job={{ table, id: row.id }} />
              </th>
              <td data-label="Outcome">{row.outcome}</td>
              <td data-label="Rule">{row.rule}</td>
              <td data-label="Stage">
                <Text>{row.stage}</Text>
              </td>
              <td data-label="Held by">
                <Text>{row.holder}</Text>
              </td>
              <td data-label="Attempt">{row.attempt}</td>
            </tr>
          ))}
        </Table>
      )}
    </div>
  )
}

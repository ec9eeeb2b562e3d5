/** Dead letters by what they died of: a code and a stage, how many, and one action for all of them. */
import { useContext } from 'preact/hooks'

import type { Groups } from '../answers.ts'
import { withQuery } from '../api.ts'
import { useLive } from '../live.ts'
import { ActionsHint, BulkButton } from '../parts/act.tsx'
import { number, Table, Text, Trouble } from '../parts/show.tsx'
import { SessionContext } from '../session.ts'

export function FailuresPage(): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  const { data, error, refresh } = useLive<Groups>('/api/failures', 2)
  const withSome = (data ?? []).filter(({ groups }) => groups.length > 0)
  return (
    <>
      <Trouble error={error} hasData={data !== null} />
      {data !== null && withSome.length === 0 && <p>No job has failed.</p>}
      {withSome.length > 0 && <ActionsHint command={`retry --table … --code … --stage … --reason '...' --yes`} />}
      {withSome.map(({ table, groups }) => (
        <section key={table}>
          <h2>{table}</h2>
          <Table
            caption={`Failed jobs of ${table}`}
            head={['Code', 'Stage', 'Jobs', ...(session.hasActions ? ['Do'] : [])]}
          >
            {groups.map(({ code, stage, jobs }) => (
              <tr key={JSON.stringify([code, stage])}>
                <th scope="row">
                  <Text>{code}</Text>
                </th>
                <td data-label="Stage">
                  <Text>{stage}</Text>
                </td>
                <td data-label="Jobs">
                  <a href={withQuery('/jobs', { table, status: 'failed', code, stage })}>{number(jobs)}</a>
                </td>
                {session.hasActions && (
                  <td data-label="Do">
                    <BulkButton
                      group={{ action: 'retry', table, filter: { code, stage }, count: jobs }}
                      onDone={refresh}
                    />
                  </td>
                )}
              </tr>
            ))}
          </Table>
        </section>
      ))}
    </>
  )
}

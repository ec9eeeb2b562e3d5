/** What is wrong, above every other screen: whoever looks at one table must not miss that another cannot be read. */
import type { OverviewAnswer } from '../answers.ts'
import { useLive } from '../live.ts'
import { plain } from './show.tsx'

export function HealthLine(): preact.JSX.Element | null {
  const { data } = useLive<OverviewAnswer>('/api/overview', 2)
  if (data === null || data.health.level === 'ok') return null
  const { level, sentence, details } = data.health
  const more = details.length > 1 ? ` And ${details.length - 1} more.` : ''
  return (
    <p class={`health line ${level}`}>
      <a href="/">
        {plain(sentence)}
        {more}
      </a>
    </p>
  )
}

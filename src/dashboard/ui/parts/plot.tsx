/** An hour in sixty bars. Said in a sentence for those who do not see it. */

interface Props {
  title: string
  /** One a minute, oldest first; null where nobody looked. */
  values: readonly (number | null)[]
  /** The sentence's end: what the numbers say. */
  summary: string
  tone: 'plain' | 'good' | 'warn' | 'bad'
  minutes: readonly string[]
}

const HEIGHT = 40
const BAR = 4

export function Plot({ title, values, summary, tone, minutes }: Props): preact.JSX.Element {
  const most = Math.max(1, ...values.map((value) => value ?? 0))
  const newest = values.findLast((value) => value !== null) ?? null
  return (
    <figure class={`plot ${tone}`}>
      <figcaption>
        {title} <strong>{summary}</strong>
      </figcaption>
      <svg
        viewBox={`0 0 ${values.length * BAR} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}, minute by minute over the last hour: ${summary}, at most ${Math.max(0, ...values.map((value) => value ?? 0))} in one minute, now ${newest ?? 0}`}
      >
        <line class="floor" x1="0" x2={values.length * BAR} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
        {values.map((value, at) =>
          value === null || value === 0 ? null : (
            <rect
              key={minutes[at]}
              x={at * BAR}
              width={BAR - 1}
              y={HEIGHT - Math.max(2, (value / most) * HEIGHT)}
              height={Math.max(2, (value / most) * HEIGHT)}
            >
              <title>{`${(minutes[at] ?? '').slice(11)} UTC: ${value}`}</title>
            </rect>
          ),
        )}
      </svg>
    </figure>
  )
}

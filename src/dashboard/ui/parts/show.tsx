/** Small things every screen shows: moments, durations, statuses, numbers, what went wrong. */
import type { ComponentChildren } from 'preact'

import { duration } from '../../../job/duration.ts'
import type { Job } from '../answers.ts'
import type { ApiError } from '../api.ts'
import { withQuery } from '../api.ts'

/** `12 s ago`, `in 2 min`; the moment itself, in UTC, when pointed at. */
export function Moment({ at, now }: { at: string | null; now: number }): preact.JSX.Element {
  if (at === null) return <span class="muted">–</span>
  const sec = (Date.parse(at) - now) / 1000
  const words = sec > 0.5 ? `in ${duration(sec)}` : `${duration(-sec)} ago`
  return (
    <time dateTime={at} title={utc(at)}>
      {words}
    </time>
  )
}

/** `2026-11-18 12:04:10 UTC` */
export function utc(at: string): string {
  const time = Date.parse(at)
  return Number.isNaN(time) ? at : `${new Date(time).toISOString().slice(0, 19).replace('T', ' ')} UTC`
}

export function Span({ sec }: { sec: number | null }): preact.JSX.Element {
  return sec === null ? <span class="muted">–</span> : <span>{duration(sec)}</span>
}

const STATUS_ICONS = { queued: '○', processing: '◐', done: '✓', failed: '✕' } as const

/** Told by word and sign, not by colour alone. */
export function StatusBadge({ job }: { job: Pick<Job, 'status' | 'word'> }): preact.JSX.Element {
  const { status, word } = job
  const isOwnWord = status !== null && word !== status
  return (
    <span class={`badge ${status ?? 'unknown'}`}>
      <span aria-hidden="true">{status === null ? '?' : STATUS_ICONS[status]}</span> {status ?? word}
      {isOwnWord && <span class="muted"> ({word})</span>}
    </span>
  )
}

export function JobLink({ job }: { job: Pick<Job, 'table' | 'id'> }): preact.JSX.Element {
  return (
    <a class="id" href={withQuery('/job', { table: job.table, id: job.id })}>
      {job.id}
    </a>
  )
}

/** What stands there is a word of somebody's, or nothing. */
export function Text({ children }: { children: string | null | undefined }): preact.JSX.Element {
  return children === null || children === undefined || children === '' ? (
    <span class="muted">–</span>
  ) : (
    <span class="text">{children}</span>
  )
}

export function number(value: number): string {
  return new Intl.NumberFormat('en').format(value)
}

/** Without the signs that turn the direction of what stands behind them: for sentences that quote a row. */
export function plain(text: string): string {
  return text.replaceAll(/[\u200E\u200F\u202A-\u202E\u2066-\u2069]/g, '�')
}

/** Above an answer that could not be renewed, or in its place while there is none. */
export function Trouble({ error, hasData }: { error: ApiError | null; hasData: boolean }): preact.JSX.Element | null {
  if (error === null) return hasData ? null : <p>Looking…</p>
  return (
    <p role="alert">
      {plain(error.message)}
      {hasData && ' What you see below is from before.'}
    </p>
  )
}

/** A table that says what it shows, and is a list of cards where the screen is narrow. */
export function Table({
  caption,
  head,
  children,
}: {
  caption: string
  head: string[]
  children: ComponentChildren
}): preact.JSX.Element {
  return (
    <div class="scroll">
      <table>
        <caption class="unseen">{caption}</caption>
        <thead>
          <tr>
            {head.map((title) => (
              <th scope="col" key={title}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}

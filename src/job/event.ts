import { cleanText } from './failure.ts'

/** The names under which a change of a job is told in the events table. A profile may spell them its own way. */
export interface EventNames {
  created: string
  processing: string
  done: string
  failed: string
  retry: string
  reaperRequeued: string
  reaperFailed: string
  requeuedStale: string
  undispatched: string
  progress: string
  aborted: string
  operatorRetry: string
  operatorCancel: string
  operatorEndedLease: string
}

export const DEFAULT_EVENT_NAMES: EventNames = {
  created: 'created',
  processing: 'processing',
  done: 'done',
  failed: 'failed',
  retry: 'retry:scheduled',
  reaperRequeued: 'reaper:requeued',
  reaperFailed: 'reaper:failed(timeout)',
  requeuedStale: 'requeued:stale',
  undispatched: 'requeued:undispatched',
  progress: 'progress',
  aborted: 'aborted:shutdown',
  operatorRetry: 'operator:retry',
  operatorCancel: 'operator:cancel',
  operatorEndedLease: 'operator:lease_ended',
}

/** Longest text kept in an event; a timeline is not a log file. */
const MAX_TEXT_LENGTH = 2000
const MAX_DETAILS_LENGTH = 20_000

/** Makes a handler's own facts storable as jsonb: plain JSON, no NUL, no lone surrogate, bounded. */
export function cleanDetails(data: Record<string, unknown>): Record<string, unknown> {
  try {
    const text = JSON.stringify(data, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value))
    if (text.length > MAX_DETAILS_LENGTH) return { cut: cleanText(text, MAX_TEXT_LENGTH) }
    return JSON.parse(text, (_, value: unknown) =>
      typeof value === 'string' ? cleanText(value, MAX_TEXT_LENGTH) : value,
    ) as Record<string, unknown>
  } catch (error) {
    return { unprintable: cleanText(error, MAX_TEXT_LENGTH) }
  }
}

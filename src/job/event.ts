/** The names under which a change of a job is told in the events table. A profile may spell them its own way. */
export interface EventNames {
  processing: string
  done: string
  failed: string
  retry: string
  reaperRequeued: string
  reaperFailed: string
  requeuedStale: string
}

export const DEFAULT_EVENT_NAMES: EventNames = {
  processing: 'processing',
  done: 'done',
  failed: 'failed',
  retry: 'retry:scheduled',
  reaperRequeued: 'reaper:requeued',
  reaperFailed: 'reaper:failed(timeout)',
  requeuedStale: 'requeued:stale',
}

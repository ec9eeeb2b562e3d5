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
  progress: string
  aborted: string
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
  progress: 'progress',
  aborted: 'aborted:shutdown',
}

/** The four statuses a job can have in our words, and the edges the state machine draws between them. */
export const STATUSES = ['queued', 'processing', 'done', 'failed'] as const

export type Status = (typeof STATUSES)[number]

/** Every legal change of status. `done` has no way out; the tests' audit witness holds every write against this. */
export const EDGES: Record<Status, readonly Status[]> = {
  queued: ['processing', 'failed'],
  processing: ['queued', 'done', 'failed'],
  done: [],
  failed: ['queued'],
}

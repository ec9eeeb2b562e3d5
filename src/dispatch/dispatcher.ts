/** A job that may run from `dueAt` on; null: now. */
export interface Offer {
  id: string
  dueAt: Date | null
}

/** How a due job reaches a worker when workers do not poll. Publishing is at least once; the claim is what makes it safe. */
export interface Dispatcher {
  /** Throws when the jobs could not be published; a later look of the reaper finds them. */
  publish(table: string, jobs: readonly Offer[]): Promise<void>
  /** Takes up to `limit` ids that are waiting; each is taken off the queue by this. */
  fetch(table: string, limit: number): Promise<string[]>
  close(): Promise<void>
}

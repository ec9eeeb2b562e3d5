/** How a due job reaches a worker when workers do not poll. Publishing is at least once; the claim is what makes it safe. */
export interface Dispatcher {
  /** Jobs that may run from `dueAt` on (null: now). Throws when they could not be published; a later look finds them. */
  publish(table: string, jobs: readonly { id: string; dueAt: Date | null }[]): Promise<void>
  /** Takes up to `limit` ids that are waiting; each is taken off the queue by this. */
  fetch(table: string, limit: number): Promise<string[]>
  close(): Promise<void>
}

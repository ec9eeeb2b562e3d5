/** Looks a table up when it is first needed and remembers the answer until something shows that the table has changed. */
import type { Database } from './client.ts'
import { isShapeError } from './errors.ts'
import type { Profile } from './profile.ts'
import { onceMore } from './retry.ts'
import { type JobTable, openTable } from './table.ts'

export interface TableHandle {
  /** Runs `use` with the table; an error of shape makes the next call look at the catalog again. */
  use<T>(use: (table: JobTable) => Promise<T>): Promise<T>
}

/** `check` throws what else stands against this use of the table. */
export function tableHandle(db: Database, profile: Profile, check?: (table: JobTable) => void): TableHandle {
  let opened: Promise<JobTable> | null = null
  return {
    async use(use) {
      opened ??= onceMore(() => openTable(db, profile)).then((table) => {
        check?.(table)
        return table
      })
      const mine = opened
      try {
        return await use(await mine)
      } catch (error) {
        const wasOpened = await mine.then(
          () => true,
          () => false,
        )
        if (opened === mine && (!wasOpened || isShapeError(error))) opened = null
        throw error
      }
    },
  }
}

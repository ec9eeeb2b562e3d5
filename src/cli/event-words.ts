/** One event as a line's cells: when, what, and the facts it brings. */
import type { ToldEvent } from '../db/timeline.ts'
import { clock } from '../operator/explain.ts'
import type { Column } from './table.ts'

/** On a terminal the time of day is enough; elsewhere the whole moment. */
export function eventColumns(table: string, now: Date | null): Column<ToldEvent>[] {
  return [
    { title: 'at', value: ({ at }) => momentWords(at, now), isWhole: true },
    { title: 'table', value: () => table, isTold: 'when it differs' },
    { title: 'event', value: ({ type }) => type, style: () => 'bold' },
    { title: 'details', value: ({ details }) => factsOf(details) },
  ]
}

/** Events of a team's own may say any time of themselves. */
export function momentWords(at: string | null, now: Date | null): string {
  const moment = new Date(at ?? '')
  return now === null || Number.isNaN(moment.getTime()) ? (at ?? '') : clock(moment, now)
}

/** `locked_by` says what `holder` says, for older readers of events. */
function factsOf({ locked_by: lockedBy, ...details }: Record<string, unknown>): string {
  const facts = details.holder === undefined && lockedBy !== undefined ? { ...details, locked_by: lockedBy } : details
  return Object.entries(facts)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(' ')
}

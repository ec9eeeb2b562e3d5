/** A timeline without its flood: progress that nothing interrupted is one line, with where it began and how often it was told. */
import type { ToldEvent } from '../db/timeline.ts'

export function withoutProgressRuns(timeline: readonly ToldEvent[], progress: string | null): ToldEvent[] {
  const short: ToldEvent[] = []
  let first: ToldEvent | null = null
  let told = 0
  for (const event of timeline) {
    const goesOn: boolean = first !== null && event.type === progress && isSameRun(event, first)
    told = goesOn ? told + 1 : 1
    if (!goesOn) first = event.type === progress ? event : null
    if (goesOn) short.pop()
    short.push(goesOn && first ? { ...event, details: { ...event.details, from: first.details.pct, told } } : event)
  }
  return short
}

function isSameRun({ details }: ToldEvent, first: ToldEvent): boolean {
  return details.attempt === first.details.attempt && details.holder === first.details.holder
}

/** `explain <id>`: where a job is, why, what happens next, and the very command that helps. */
import type { AttemptView } from '../../operator/attempts.ts'
import { duration } from '../../job/duration.ts'
import { shellWord } from '../../job/shell-word.ts'
import { commandFor, withId } from '../../operator/command.ts'
import type { Action } from '../../operator/explain.ts'
import type { JobDetails } from '../../operator/operator.ts'
import { type CommandDefinition, EXIT, type Context } from '../command.ts'
import { eventColumns, momentWords } from '../event-words.ts'
import { findAll, sayNowhere } from '../one-job.ts'
import { TABLE } from '../options.ts'
import type { Column } from '../table.ts'
import { harmless, harmlessLines } from '../text.ts'

interface Options {
  table?: string
  fields?: boolean
}

export const explain: CommandDefinition<Options> = {
  usage: 'explain <id>',
  summary: 'one job: where it is, why, what happens next, what can be done',
  configure: (command) => command.option(...TABLE).option('--fields', 'every column of its row too'),
  async run(context) {
    const { out, args, open } = context
    const [id = ''] = args
    const session = await open()
    const found = await findAll(session, context, id)
    if (out.isJson) out.json({ jobs: found })
    else for (const details of found) describe(details, found.length > 1, context)
    if (found.length > 0) return EXIT.done
    sayNowhere(session, context, id)
    return EXIT.nothing
  },
}

/** How many of the last events are shown here; `events` has those before. */
const LAST_EVENTS = 10

function describe(details: JobDetails, isAmbiguous: boolean, context: Context<Options>): void {
  const { out, options, host } = context
  const { job, explanation, attempts, timeline, fields } = details
  const { now, next, advice, actions } = explanation
  const line = (title: string, text: string): void => out.print(`  ${title.padEnd(7)} ${harmless(text, 3000)}\n`)
  const stage = job.stage === null ? '' : `, stage ${job.stage}`
  out.print(`${out.paint('bold', harmless(`${job.table} › ${job.id}${stage}`, 1000))}\n`)
  line('now', now)
  const reason = job.status === 'failed' ? (job.failReason ?? '').trim() : ''
  // The sentence has its first line only; what a program said last may stand further down.
  if (reason !== '' && !now.includes(`${reason})`)) out.print(`  reason  ${inLines(reason)}\n`)
  line('next', next)
  if (advice !== null) line('advice', advice)
  if (actions.length > 0) out.print('\n')
  for (const action of actions) {
    out.print(`  ${host.call(commandFor(action, job, { hasTable: isAmbiguous }))}\n`)
    out.print(`    ${out.paint('dim', meaning(action, job))}\n`)
  }
  if (attempts.length > 0) out.print(`\n${out.paint('bold', 'attempts')}\n`)
  out.table(attemptColumns(job.now), attempts)
  const last = timeline.slice(-LAST_EVENTS)
  if (last.length > 0) out.print(`\n${out.paint('bold', 'events')}\n`)
  out.table(eventColumns(job.table, job.now), last)
  const table = isAmbiguous ? ['--table', shellWord(job.table)] : []
  if (timeline.length > last.length)
    out.print(`  ${host.call(withId('events', job.id, table))} shows those before too.\n`)
  if (options.fields) {
    out.print(`\n${out.paint('bold', 'columns')}\n`)
    for (const { name, value, isCut } of fields) {
      out.print(`  ${harmless(name)}: ${value === null ? 'NULL' : harmless(value, 2000)}${isCut ? '…' : ''}\n`)
    }
  }
  out.print('\n')
}

function inLines(text: string): string {
  return harmlessLines(text.replaceAll('\r\n', '\n')).split('\n').join('\n          ')
}

function meaning(action: Action, { status }: JobDetails['job']): string {
  switch (action) {
    case 'retry':
      return status === 'failed'
        ? 'runs it again as soon as a worker is free; its attempts stay counted, and one more is allowed'
        : 'makes it due now, with one more attempt where none is left'
    case 'cancel':
      return `fails it for good${status === 'processing' ? '; its worker learns so at its next heartbeat' : ''}`
    case 'end-lease':
      return 'takes it from its holder now, as if its time were up'
    default:
      return action satisfies never
  }
}

function attemptColumns(now: Date): Column<AttemptView>[] {
  return [
    { title: 'attempt', value: ({ attempt }) => String(attempt), isNumber: true },
    { title: 'holder', value: ({ holder }) => holder ?? '' },
    { title: 'began', value: ({ startedAt }) => momentWords(startedAt, now), isWhole: true },
    { title: 'lasted', value: ({ durationSec }) => (durationSec === null ? '' : duration(durationSec)) },
    { title: 'ended with', value: ({ end }) => end ?? '' },
    { title: 'code', value: ({ code }) => code ?? '' },
    { title: 'reason', value: ({ reason }) => reason ?? '' },
  ]
}

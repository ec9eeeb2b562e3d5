/** `retry`, `cancel`, `end-lease`: what can be done to jobs by hand, to those that are named or to all that match. */
import { actById } from '../act-by-id.ts'
import { actOnAllMatching, type BulkOptions } from '../act-on-all.ts'
import { addActing, type ActingOptions, deedOf } from '../acting.ts'
import { type CommandDefinition, UsageError } from '../command.ts'
import type { BulkAction } from '../../operator/operator.ts'
import { addFilter } from '../options.ts'

export const retry = acting('retry', {
  summary: 'run failed jobs again, or waiting ones now: those named, or all failed that match',
  examples: [
    `retry 4711 --reason 'disk was full'`,
    `retry --table jobs --code CHILD_MISSING --reason 'ffmpeg is installed' --yes`,
  ],
})

export const cancel = acting('cancel', {
  summary: 'fail jobs for good: those named, or all waiting ones that match',
  examples: [`cancel 4711 --reason 'customer left'`, `cancel --table jobs --stage asr --reason 'wrong model' --yes`],
})

export const endLease: CommandDefinition<ActingOptions> = {
  usage: 'end-lease <id...>',
  summary: 'take running jobs from their holder now, as if their time were up',
  examples: [`end-lease 4711 --reason 'the host is gone'`],
  configure: addActing,
  async run(context) {
    deedOf(context)
    return actById(await context.open({ isActing: true }), context, 'end-lease')
  },
}

function acting(
  action: BulkAction,
  words: Pick<CommandDefinition, 'summary' | 'examples'>,
): CommandDefinition<BulkOptions> {
  return {
    usage: `${action} [id...]`,
    ...words,
    configure: (command) =>
      addFilter(addActing(command)).option('--yes', 'do it to all that match, without only showing how many'),
    async run(context) {
      const { args, options } = context
      const { table, code, stage, holder, seen } = options
      const isFiltered = [code, stage, holder].some((each) => each !== undefined)
      if (args.length > 0 && isFiltered) throw new UsageError('expected ids, or --code, --stage and --holder, not both')
      if (args.length === 0 && seen !== undefined) throw new UsageError('--seen: expected an id with it')
      if (args.length === 0 && !isFiltered && table === undefined) {
        throw new UsageError('expected the ids of jobs, or --table, --code, --stage or --holder for all that match')
      }
      // Before a database is asked for anything.
      deedOf(context)
      const session = await context.open({ isActing: true })
      return args.length > 0 ? actById(session, context, action) : actOnAllMatching(session, context, action)
    },
  }
}

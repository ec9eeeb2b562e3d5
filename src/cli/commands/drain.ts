/** `drain --plan`: what a deploy right now would interrupt. It only looks: workers drain by themselves at SIGTERM. */
import { duration } from '../../job/duration.ts'
import type { DrainJob, DrainPlan } from '../../operator/drain.ts'
import { type CommandDefinition, EXIT, UsageError } from '../command.ts'
import { wholeNumber } from '../options.ts'
import type { Column } from '../table.ts'

interface Options {
  plan?: boolean
  timeout?: number
}

export const drain: CommandDefinition<Options> = {
  usage: 'drain',
  summary: 'with --plan: what a deploy right now would interrupt',
  configure: (command) =>
    command
      .option('--plan', 'only look (required: workers drain by themselves at SIGTERM)')
      .option('--timeout <sec>', 'how long workers get; the default is SHUTDOWN_TIMEOUT_SEC', wholeNumber(0, 86_400)),
  async run({ options, open, out }) {
    if (!options.plan) throw new UsageError('expected --plan; a worker drains by itself at SIGTERM')
    const { operator, config } = await open()
    const plan = await operator.drain(options.timeout ?? config.worker.shutdownTimeoutSec)
    if (out.isJson) {
      out.json(plan)
      return EXIT.done
    }
    out.print(`${sentence(plan)}\n`)
    if (plan.jobs.length > 0) out.print('\n')
    out.table(COLUMNS, plan.jobs)
    const total = totalOf(plan)
    if (plan.jobs.length < total) out.say(`These are the ${plan.jobs.length} that need longest, of ${total}.`)
    return EXIT.done
  },
}

/** The jobs themselves are no more than can be read; the numbers are of all. */
function totalOf({ finishes, givenBack, unknown }: DrainPlan): number {
  return finishes + givenBack + unknown
}

function sentence(plan: DrainPlan): string {
  const { finishes, givenBack, unknown, lostSec, shutdownTimeoutSec, isCut } = plan
  const total = totalOf(plan)
  if (total === 0 && isCut) return 'So many jobs are past their time that those with time left were not looked at.'
  if (total === 0) return 'A deploy interrupts nothing: no job is running that has time left.'
  const within = `within ${duration(shutdownTimeoutSec)}`
  const parts = [
    `${finishes} of ${total}${isCut ? ' or more' : ''} running jobs finish ${within}`,
    givenBack === 1 ? '1 is given back and starts anew' : `${givenBack} are given back and start anew`,
    unknown > 0 && `of ${unknown} nothing tells how much they still need`,
  ]
  return `${parts.filter(Boolean).join(', ')}. At most ${duration(lostSec)} of work would be done again.`
}

const COLUMNS: Column<DrainJob>[] = [
  { title: 'id', value: ({ id }) => id, isWhole: true },
  { title: 'table', value: ({ table }) => table, isTold: 'when it differs' },
  { title: 'stage', value: ({ stage }) => stage ?? '', isTold: 'when there is room' },
  { title: 'holder', value: ({ holder }) => holder ?? '' },
  { title: 'running for', value: ({ runningSec }) => (runningSec === null ? '' : duration(runningSec)), isWhole: true },
  {
    title: 'still needs',
    value: ({ remainingSec }) => (remainingSec === null ? '?' : duration(remainingSec)),
    isWhole: true,
  },
  {
    title: 'then',
    value: ({ outcome }) => outcome,
    isWhole: true,
    style: ({ outcome }) => (outcome === 'finishes' ? 'green' : 'yellow'),
  },
]

/** `leases`: every running job, and how long it has left; those that are reaped next come first. */
import type { JobView } from '../../db/job-view.ts'
import { soonestFirst } from '../../operator/operator.ts'
import { acrossTables } from '../across.ts'
import { shareLeft } from '../../operator/time-left.ts'
import type { CommandDefinition } from '../command.ts'
import { age, ATTEMPT, HOLDER, ID, leftWords, STAGE, TABLE_NAME, urgency } from '../job-words.ts'
import { orNone, TABLE, wholeNumber } from '../options.ts'
import type { Column } from '../table.ts'

interface Options {
  table?: string
  holder?: string
  limit: number
}

export const leases: CommandDefinition<Options> = {
  usage: 'leases',
  summary: 'running jobs and how long each has left, those that are reaped next first',
  configure: (command) =>
    command
      .option(...TABLE)
      .option('--holder <holder>', `held by this worker; '' for nobody`)
      .option('--limit <n>', 'at most so many', wholeNumber(1, 500), 100),
  async run(context) {
    const { out, options, open, host } = context
    const session = await open()
    const holder = orNone(options.holder)
    const { answers, refused, exit } = await acrossTables(session, context, (table) =>
      session.operator.leases({ table, limit: options.limit, ...(holder === undefined ? {} : { holder }) }),
    )
    const jobs = answers.flat().toSorted(soonestFirst).slice(0, options.limit)
    if (out.isJson) {
      out.json({ leases: jobs, refused })
      return exit
    }
    out.table(out.isTerminal ? [...COLUMNS.slice(0, 5), BAR, ...COLUMNS.slice(5)] : COLUMNS, jobs)
    if (jobs.length === 0) out.say('Nothing is running.')
    if (jobs.length === options.limit) out.say(`These are the first ${options.limit}; --limit shows more.`)
    const [first] = jobs
    if (first) out.say(`${host.call('explain <id>')} says why, and what happens next.`)
    return exit
  },
}

const BAR_CELLS = 10
const BAR: Column<JobView> = {
  title: 'time left',
  value(job) {
    const share = shareLeft(job, job.now.getTime())
    if (share === null) return job.endsAt ? '' : '?'.repeat(BAR_CELLS)
    const full = Math.ceil(share * BAR_CELLS)
    return '█'.repeat(full) + '░'.repeat(BAR_CELLS - full)
  },
  style: urgency,
  isWhole: true,
}

const COLUMNS: Column<JobView>[] = [
  ID,
  TABLE_NAME,
  STAGE,
  HOLDER,
  ATTEMPT,
  { title: '', value: leftWords, style: urgency, isWhole: true },
  {
    title: 'then',
    value: ({ outcome }) => (outcome === 'requeued' ? 'again' : outcome === 'failed' ? 'fails' : ''),
    style: ({ outcome }) => (outcome === 'failed' ? 'red' : null),
  },
  {
    title: 'heartbeat',
    value: ({ heartbeatAt, leaseUntil, isLeaseOdd, now }) =>
      [heartbeatAt ? `${age(heartbeatAt, now)} ago` : 'none', leaseUntil || isLeaseOdd ? '' : '(no lease)']
        .filter(Boolean)
        .join(' '),
    isTold: 'when there is room',
    isWhole: true,
  },
  {
    title: 'progress',
    value: ({ progress }) => (progress === null ? '' : `${Math.round(progress)} %`),
    isNumber: true,
    isTold: 'when there is room',
  },
]

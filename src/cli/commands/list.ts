/** `list`: jobs by table, status, stage, code or holder, newest first, page after page. */
import type { JobView } from '../../db/job-view.ts'
import { shellWord } from '../../job/shell-word.ts'
import { acrossTables } from '../across.ts'
import { type CommandDefinition, UsageError } from '../command.ts'
import { ATTEMPT, HOLDER, ID, STAGE, STATUS, TABLE_NAME, whenWords } from '../job-words.ts'
import { addFilter, type FilterOptions, filterOf, statusNamed, TABLE, wholeNumber } from '../options.ts'
import type { Column } from '../table.ts'

interface Options extends FilterOptions {
  table?: string
  status?: string
  after?: string
  limit: number
}

export const list: CommandDefinition<Options> = {
  usage: 'list',
  summary: 'jobs by table, status, stage, code or holder, newest first',
  examples: ['list --status failed --code TIMEOUT', `list --table jobs --status processing --stage ''`],
  configure: (command) =>
    addFilter(command.option(...TABLE).option('--status <status>', 'queued, processing, done or failed'))
      .option('--after <id>', 'go on behind this id: the last one of the page before')
      .option('--limit <n>', 'at most so many of each table', wholeNumber(1, 500), 50),
  async run(context) {
    const { out, options, open, host } = context
    const session = await open()
    const { operator, profiles } = session
    const { table, after, limit } = options
    if (after !== undefined && table === undefined && operator.tables.length > 1) {
      throw new UsageError(`--after: expected --table with it, because there are ${operator.tables.join(' and ')}`)
    }
    const status = options.status === undefined ? undefined : statusNamed(options.status, profiles)
    const filter = { ...filterOf(options), status }
    const { answers, refused, exit } = await acrossTables(session, context, async (name) => ({
      table: name,
      ...(await operator.jobs(name, { filter, after: after ?? null, limit })),
    }))
    if (out.isJson) {
      out.json({ tables: answers, refused })
      return exit
    }
    out.table(
      COLUMNS,
      answers.flatMap(({ jobs }) => jobs),
    )
    if (answers.every(({ jobs }) => jobs.length === 0)) out.say('No job matches.')
    for (const { table: name, next } of answers) {
      if (next !== null) out.say(`More: ${host.call(`list ${nextPage(options, name, next)}`)}`)
    }
    return exit
  },
}

const COLUMNS: Column<JobView>[] = [
  ID,
  TABLE_NAME,
  STATUS,
  STAGE,
  ATTEMPT,
  { title: 'when', value: whenWords, isWhole: true },
  { ...HOLDER, isTold: 'when there is room' },
  { title: 'code', value: ({ failCode }) => failCode ?? '' },
]

/** The same question for the next page, ready to be run. */
function nextPage({ status, stage, code, holder, limit }: Options, table: string, after: string): string {
  const given = { table, status, stage, code, holder, limit: limit === 50 ? undefined : String(limit), after }
  return Object.entries(given)
    .flatMap(([name, value]) => (value === undefined ? [] : [`--${name} ${shellWord(value)}`]))
    .join(' ')
}

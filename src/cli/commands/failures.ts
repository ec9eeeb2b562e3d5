/** `failures`: why jobs failed, in groups by code and stage, most first. */
import type { FailureGroup } from '../../db/job-view.ts'
import { shellWord } from '../../job/shell-word.ts'
import { acrossTables } from '../across.ts'
import type { CommandDefinition } from '../command.ts'
import { TABLE } from '../options.ts'
import type { Column } from '../table.ts'

export const failures: CommandDefinition<{ table?: string }> = {
  usage: 'failures',
  summary: 'why jobs failed, in groups by code and stage',
  configure: (command) => command.option(...TABLE),
  async run(context) {
    const { out, open, host } = context
    const session = await open()
    const { answers, refused, exit } = await acrossTables(session, context, (table) => session.operator.failures(table))
    const tables = answers.flat()
    if (out.isJson) {
      out.json({ tables, refused })
      return exit
    }
    const groups = tables.flatMap(({ table, groups }) => groups.map((group) => ({ table, ...group })))
    const sorted = groups.toSorted((a, b) => b.jobs - a.jobs)
    out.table(COLUMNS, sorted)
    const [most] = sorted
    if (!most) {
      out.say('No job has failed.')
      return exit
    }
    const which = `--table ${shellWord(most.table)} --code ${shellWord(most.code ?? '')}`
    out.say(`\nTo see the first group:    ${host.call(`list --status failed ${which}`)}`)
    out.say(`To run it again, in bulk:  ${host.call(`retry ${which} --reason '...'`)}`)
    return exit
  },
}

const COLUMNS: Column<FailureGroup & { table: string }>[] = [
  { title: 'jobs', value: ({ jobs }) => String(jobs), isNumber: true },
  { title: 'table', value: ({ table }) => table },
  { title: 'code', value: ({ code }) => code ?? '(none)' },
  { title: 'stage', value: ({ stage }) => stage ?? '' },
]

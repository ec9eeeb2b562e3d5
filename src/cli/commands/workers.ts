/** `workers`: who holds running jobs, and who has fallen silent. Nobody registers here: it is read from the leases. */
import type { HolderView } from '../../db/job-view.ts'
import { duration } from '../../job/duration.ts'
import { acrossTables } from '../across.ts'
import type { CommandDefinition } from '../command.ts'
import { TABLE } from '../options.ts'
import type { Column } from '../table.ts'

export const workers: CommandDefinition<{ table?: string }> = {
  usage: 'workers',
  summary: 'who holds running jobs, and who has fallen silent',
  configure: (command) => command.option(...TABLE),
  async run(context) {
    const { out, open } = context
    const session = await open()
    const { answers, refused, exit } = await acrossTables(session, context, (table) => session.operator.workers(table))
    const tables = answers.flat()
    if (out.isJson) {
      out.json({ tables, refused })
      return exit
    }
    const rows = tables.flatMap(({ table, holders }) => holders.map((holder) => ({ table, ...holder })))
    out.table(COLUMNS, rows)
    if (rows.length === 0)
      out.say('Nothing is running, so nobody is known. An idle worker holds nothing and is not seen here.')
    return exit
  },
}

type Row = HolderView & { table: string }

const COLUMNS: Column<Row>[] = [
  { title: 'holder', value: ({ holder }) => holder ?? '(nobody known)', isWhole: true },
  { title: 'table', value: ({ table }) => table, isTold: 'when it differs' },
  { title: 'jobs', value: ({ jobs }) => String(jobs), isNumber: true },
  {
    title: 'expired',
    value: ({ expired }) => String(expired),
    isNumber: true,
    style: ({ expired }) => (expired > 0 ? 'red' : null),
  },
  { title: 'last heartbeat', value: ({ silentSec }) => (silentSec === null ? 'none' : `${duration(silentSec)} ago`) },
  {
    title: 'busy for',
    value: ({ busySec }) => (busySec === null ? '' : duration(busySec)),
    isTold: 'when there is room',
  },
  {
    title: 'next end',
    value: ({ endsInSec }) =>
      endsInSec === null ? '' : endsInSec > 0 ? `in ${duration(endsInSec)}` : `over for ${duration(-endsInSec)}`,
  },
  { title: 'stages', value: ({ stages }) => stages.map((stage) => stage ?? '(none)').join(', ') },
]

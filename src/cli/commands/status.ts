/** `status`: is anything stuck? One sentence, then the numbers of each table. */
import { duration } from '../../job/duration.ts'
import type { HealthLevel } from '../../operator/health.ts'
import type { TableOverview } from '../../operator/operator.ts'
import { EXIT, type CommandDefinition } from '../command.ts'
import type { Style } from '../output.ts'
import type { Column } from '../table.ts'
import { harmless } from '../text.ts'

const COLOURS: Record<HealthLevel, Style> = { ok: 'green', attention: 'yellow', unhealthy: 'red' }

export const status: CommandDefinition = {
  usage: 'status',
  summary: 'is anything stuck? Exit code 1 when it is',
  async run({ out, open, host }) {
    const { operator } = await open()
    const { at, health, tables } = await operator.overview()
    const exit = health.level === 'unhealthy' ? EXIT.unwell : EXIT.done
    if (out.isJson) {
      out.json({ at, health, tables })
      return exit
    }
    out.print(`${out.paint(COLOURS[health.level], harmless(health.sentence, 1000))}\n`)
    for (const { level, text } of health.details.slice(1))
      out.print(`${out.paint(COLOURS[level], harmless(text, 1000))}\n`)
    out.print('\n')
    out.table(COLUMNS, tables)
    if (tables.some(({ obstacle }) => obstacle !== null)) out.say(`\n${host.call('doctor')} says what mends it.`)
    if (tables.some(({ expired }) => expired > 0))
      out.say(`\n${host.call('leases')} shows what is held, by whom, and until when.`)
    if (tables.some(({ failed }) => failed > 0)) out.say(`${host.call('failures')} shows why jobs failed.`)
    return exit
  },
}

const count = (many: number): string => String(many)
const age = (sec: number | null): string => (sec === null ? '' : duration(sec))

const COLUMNS: Column<TableOverview>[] = [
  { title: 'table', value: ({ table }) => table, isWhole: true },
  { title: 'running', value: ({ processing }) => count(processing), isNumber: true },
  { title: 'expired', value: ({ expired }) => count(expired), isNumber: true },
  { title: 'due', value: ({ due }) => count(due), isNumber: true },
  { title: 'oldest due', value: ({ oldestDueSec }) => age(oldestDueSec), isNumber: true },
  { title: 'for later', value: ({ queued, due }) => count(queued - due), isNumber: true },
  { title: 'failed', value: ({ failed }) => count(failed), isNumber: true },
  { title: 'done, about', value: ({ done }) => count(done), isNumber: true },
]

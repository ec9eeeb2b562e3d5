/** `reap --once`: one pass of the reaper by hand, or with --dry-run what one would do. */
import { recoverySettings } from '../../config/config.ts'
import type { ReapedRow } from '../../db/reap.ts'
import { createIsolation } from '../../reaper/isolation.ts'
import { reapTable } from '../../reaper/reap.ts'
import type { Log } from '../../telemetry/log.ts'
import { type Watched, watchTables } from '../../operator/watched.ts'
import { acrossTables } from '../across.ts'
import { type CommandDefinition, type Context, EXIT, UsageError } from '../command.ts'
import { TABLE } from '../options.ts'
import type { Output } from '../output.ts'
import { once, progress } from '../progress.ts'
import type { Session } from '../session.ts'
import type { Column } from '../table.ts'

interface Options {
  table?: string
  once?: boolean
  dryRun?: boolean
}

export const reap: CommandDefinition<Options> = {
  usage: 'reap',
  summary: 'one pass of the reaper by hand; --dry-run shows what it would do',
  examples: ['reap --once --dry-run'],
  configure: (command) =>
    command
      .option('--once', 'one pass (required: the service is start:reaper)')
      .option('--dry-run', 'only show what a pass would do now, and by which rule')
      .option(...TABLE),
  async run(context) {
    const { options, open, out, ifAbandoned } = context
    if (!options.once) throw new UsageError('expected --once; the reaper that stays is bun run start:reaper')
    const isDry = options.dryRun ?? false
    const session = await open({ isActing: !isDry })
    const passed: Passed = { jobs: [], setAside: [] }
    const report = once((refused: object[], isWhole: boolean) => tell(context, passed, refused, isWhole))
    if (!isDry) ifAbandoned(() => report([], false))
    const { refused, exit } = await acrossTables(session, context, (table) =>
      isDry ? preview(session, table, passed) : pass(session, context, table, passed),
    ).catch((error: unknown) => {
      // What was moved before stays moved, and has to be told.
      if (passed.jobs.length > 0) report([], false)
      throw error
    })
    report(refused, refused.length === 0)
    if (!out.isJson) await saySpared(session, context)
    return passed.setAside.length === 0 ? exit : EXIT.unwell
  },
}

type ReapedJob = ReapedRow & { table: string }

/** Of all tables, as it grows. */
interface Passed {
  jobs: ReapedJob[]
  /** Jobs that break their statement: a constraint or trigger of the table refuses them. */
  setAside: { table: string; id: string }[]
}

function tell(
  { out, options }: Context<Options>,
  { jobs, setAside }: Passed,
  refused: object[],
  isWhole: boolean,
): void {
  const isDry = options.dryRun ?? false
  if (out.isJson) {
    out.json({ isDryRun: isDry, jobs, setAside, refused })
    return
  }
  out.table(COLUMNS, jobs)
  const having = (outcome: ReapedJob['outcome']): number => jobs.filter((job) => job.outcome === outcome).length
  const would = isDry ? 'would be ' : ''
  if (jobs.length > 0) out.say(`${having('requeued')} ${would}requeued, ${having('failed')} ${would}failed.`)
  else if (isWhole) out.say('No job has run out of time.')
}

/** A preview of more than this is no longer read by anybody. */
const MOST_SHOWN = 10_000

async function preview({ operator }: Session, table: string, { jobs }: Passed): Promise<void> {
  const rows = await operator.dryRun(table, MOST_SHOWN)
  jobs.push(...rows.map((row) => ({ table, ...row })))
}

/** With the grace that the service gives: whoever does this by hand mostly does it when something has just been down. */
async function pass(session: Session, { out, host }: Context, table: string, passed: Passed): Promise<void> {
  const { db, config, dispatch } = session
  const { handle, settings } = watched(session, table)
  const { batchSize } = config.reaper
  const isolation = createIsolation(Infinity)
  let moved = 0
  const tellProgress = progress(out)
  await handle.use((opened) =>
    reapTable(
      opened,
      {
        db,
        settings,
        dispatch,
        isolation,
        metrics: undefined,
        signal: host.stopped,
        log: warningsTo(out),
        batch: { size: batchSize, limit: batchSize },
        onBatch(rows) {
          passed.jobs.push(...rows.map((row) => ({ table, ...row })))
          moved += rows.length
          tellProgress(`${table}: ${moved} so far`)
        },
      },
      { yieldToOthers: false },
    ),
  )
  passed.setAside.push(...isolation.ids().map((id) => ({ table, id })))
}

/** Of what a pass tells its log, a person needs only what went wrong. */
function warningsTo(out: Output): Log {
  const warn = (fields: unknown, message = ''): void => {
    const { jobId, error } = fields as { jobId?: string; error?: string }
    out.say([jobId, message, error].filter(Boolean).join(': '))
  }
  return { debug: () => undefined, info: () => undefined, warn, error: warn }
}

function watched({ db, config, profiles }: Session, table: string): Watched {
  const [found] = watchTables({
    db,
    tables: profiles.filter((profile) => profile.table === table),
    ...recoverySettings(config),
  })
  if (!found) throw new Error(`no table ${table}`)
  return found
}

async function saySpared({ operator }: Session, { out, options }: Context<Options>): Promise<void> {
  const { tables } = await operator.overview()
  for (const { table, spared } of tables) {
    if (spared === 0 || (options.table !== undefined && options.table !== table)) continue
    out.say(
      `${table}: ${spared} left alone for now: the database was away, and their holders still have time to check in.`,
    )
  }
}

const COLUMNS: Column<ReapedJob>[] = [
  { title: 'id', value: ({ id }) => id, isWhole: true },
  { title: 'table', value: ({ table }) => table, isTold: 'when it differs' },
  { title: 'outcome', value: ({ outcome }) => outcome, style: ({ outcome }) => (outcome === 'failed' ? 'red' : null) },
  { title: 'rule', value: ({ rule }) => rule },
  { title: 'stage', value: ({ stage }) => stage ?? '', isTold: 'when there is room' },
  { title: 'attempt', value: ({ attempt }) => String(attempt), isNumber: true, isTold: 'when there is room' },
  { title: 'holder', value: ({ holder }) => holder ?? '' },
]

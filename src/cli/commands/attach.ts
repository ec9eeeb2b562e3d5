/** `attach [table]`: proposes a profile for a table, the SQL it takes and what the reaper would do; writes with --apply. */
import type { Database } from '../../db/client.ts'
import { migrate } from '../../db/migrate.ts'
import { ProfileError } from '../../db/profile-file.ts'
import { openTable } from '../../db/table.ts'
import { shellWord } from '../../job/shell-word.ts'
import { type Attachment, doubtsOf, lookToAttach } from '../attach.ts'
import { type AttachArguments, attachArguments, type AttachOptions } from '../attach-options.ts'
import { findJobTables, meantTable } from '../attach-tables.ts'
import { attachmentText, tablesText } from '../attach-text.ts'
import { type CommandDefinition, type Context, EXIT, type Exit } from '../command.ts'
import type { Output } from '../output.ts'
import type { Session } from '../session.ts'
import { addEntry, readTablesFile, type TablesFile } from '../tables-file.ts'

export const attach: CommandDefinition<AttachOptions> = {
  usage: 'attach [table]',
  summary: 'propose a profile for a table you have; --apply writes it',
  examples: ['attach', 'attach media.jobs', 'attach media.jobs --apply'],
  configure: (command) =>
    command
      .option('--events <name>', 'the table its events go to')
      .option('--recover-only', 'only recover jobs; add no columns')
      .option('--apply', 'run the SQL and write the entry')
      .option('--file <path>', 'the file of tables; the default is LEASEHOLD_TABLES, else ./tables.json'),
  async run(context) {
    const given = attachArguments(context.args[0], context.options)
    const session = await context.open({ tables: 'unread' })
    return given.table === null ? listTables(session, context) : look(session, context, given, given.table)
  },
}

async function listTables({ db }: Session, { out, host }: Context): Promise<Exit> {
  const tables = await findJobTables(db)
  if (out.isJson) out.json({ tables })
  else out.print(tablesText(tables))
  const [best] = tables
  out.say(
    best
      ? `\nGo on with: ${host.call(`attach ${shellWord(best.table)}`)}`
      : `${db.target}: no table has a status column with words like queued or running. If you have one: ${host.call('attach TABLE')}`,
  )
  return EXIT.done
}

async function look(session: Session, context: Context, given: AttachArguments, table: string): Promise<Exit> {
  const { db, config } = session
  const { out } = context
  const file = findFile(session, context, given)
  const { stages, leaseTimeoutSec, reaper } = config
  const found = await lookToAttach(db, {
    table,
    events: given.events,
    isRecoverOnly: given.isRecoverOnly,
    known: file?.profiles.find((each) => each.table === table) ?? null,
    rules: { stages, leaseTimeoutSec, nullLeaseSec: reaper.nullLeaseSec },
    maxAttempts: config.maxAttempts,
    ladderMs: config.backoffLadderMs,
    queuedOrphanSec: reaper.queuedOrphanSec,
  })
  if (!found) return sayMissing(db, context, table)
  if (!out.isJson) out.print(attachmentText(found))
  const exit = given.isApply && file ? await apply(session, context, found, file) : verdict(context, found)
  if (out.isJson) out.json({ ...found, isApplied: given.isApply && exit === EXIT.done })
  return exit
}

async function sayMissing(db: Database, { out, host }: Context, table: string): Promise<Exit> {
  const meant = await meantTable(db, table)
  out.say(`there is no table ${table} in ${db.target}${meant === null ? '' : `, did you mean ${meant}?`}`)
  out.say(
    `Names are taken exactly as written, with their schema where it is not on the search path. ${host.call('attach')} lists tables.`,
  )
  return EXIT.usage
}

/** The file the entry belongs to. Without --apply, one that cannot be used is no reason to stop: nothing is written to it. */
function findFile({ config }: Session, { out }: Context, { file, isApply }: AttachArguments): TablesFile | null {
  const path = file ?? config.tablesFile ?? './tables.json'
  try {
    return readTablesFile(path)
  } catch (error) {
    if (isApply || !(error instanceof ProfileError)) throw error
    out.say(`${error.message}\nGoing on without it.`)
    return null
  }
}

function verdict({ out }: Context, { profile, entry, guesses, findings, sql }: Attachment): Exit {
  const isFit = profile !== null && !findings.some(({ level }) => level === 'error')
  if (!isFit) return EXIT.unwell
  if (doubtsOf(guesses).length > 0) sayDoubts(out, guesses)
  else if (entry !== null || sql.length > 0)
    out.say('\nNothing was written. The same with --apply runs the SQL and writes the entry.')
  return EXIT.done
}

async function apply(
  { db, config, url }: Session,
  { out }: Context,
  found: Attachment,
  file: TablesFile,
): Promise<Exit> {
  const { profile, entry, guesses, findings } = found
  if (profile === null || findings.some(({ level }) => level === 'error')) {
    out.say('\nNot applied, nothing was written: see what stands against the table.')
    return EXIT.unwell
  }
  if (doubtsOf(guesses).length > 0) {
    sayDoubts(out, guesses)
    return EXIT.unwell
  }
  const steps = await migrate(db, url, {
    tables: [profile],
    isAttached: true,
    maxAttempts: config.maxAttempts,
    onProgress: out.say,
  })
  // The entry is written only for a table that the reaper would take.
  await openTable(db, profile)
  if (entry) addEntry(file, entry)
  out.say(
    `\n${db.target}: ${steps.length} statements done; ${entry ? `entry written to ${file.path}` : `${file.path} is as it was`}`,
  )
  const tables = `LEASEHOLD_TABLES=${shellWord(file.path)}`
  out.say(`Next: ${tables} bun run doctor`)
  out.say(`Then: ${tables} bun run start:reaper`)
  return EXIT.done
}

function sayDoubts(out: Output, guesses: Attachment['guesses']): void {
  out.say('\nNot sure enough to be applied; nothing was written:')
  for (const { place, chosen, why } of doubtsOf(guesses)) out.say(`  ${place} ${chosen ?? ''}: ${why}`)
  out.say(
    'Write the entry by hand, with the right names, into the file of tables; then LEASEHOLD_TABLES=FILE bun run migrate.',
  )
}

/** bun run attach [TABLE]: proposes a profile for a table, the SQL it takes and what the reaper would do; writes with --apply. */
import { type Attachment, doubtsOf, lookToAttach } from '../src/cli/attach.ts'
import { ATTACH_USAGE, type AttachArguments, readAttachArguments, UsageError } from '../src/cli/attach-options.ts'
import { findJobTables, meantTable } from '../src/cli/attach-tables.ts'
import { attachmentText, tablesText } from '../src/cli/attach-text.ts'
import { addEntry, readTablesFile, type TablesFile } from '../src/cli/tables-file.ts'
import type { Config } from '../src/config/config.ts'
import { type Database, openDatabase } from '../src/db/client.ts'
import { describeError, isConnectionError } from '../src/db/errors.ts'
import { migrate } from '../src/db/migrate.ts'
import { ProfileError } from '../src/db/profile-file.ts'
import { openTable } from '../src/db/table.ts'
import { EXIT_CONFIGURATION, findDatabase, readConfigOrExit } from './support/program.ts'

const say = (line: string): boolean => process.stderr.write(`${line}\n`)
const print = (text: string): boolean => process.stdout.write(text)

const options = readArgumentsOrExit()
const config = readConfigOrExit()
const target = await findDatabase(config, { info: (_facts: unknown, line?: string) => say(line ?? '') })
const { queryTimeoutSec } = config.database
const db = openDatabase({ url: target.url, queryTimeoutSec, applicationName: 'leasehold attach' })

let exitCode = 1
try {
  exitCode = options.table === null ? await listTables(db) : await attach(db, options, options.table)
} catch (error) {
  const hint = isConnectionError(error) ? '\nIs the database up, and is DATABASE_URL right?' : ''
  say(error instanceof ProfileError ? error.message : `attach: ${describeError(error)}${hint}`)
}
await db.close()
await target.stop()
process.exit(exitCode)

async function listTables(db: Database): Promise<number> {
  const tables = await findJobTables(db)
  print(options.isJson ? `${JSON.stringify({ tables }, null, 2)}\n` : tablesText(tables))
  const [best] = tables
  say(
    best
      ? `\nGo on with: bun run attach ${shellWord(best.table)}`
      : `${db.target}: no table has a status column with words like queued or running. If you have one: bun run attach TABLE`,
  )
  return 0
}

async function attach(db: Database, options: AttachArguments, table: string): Promise<number> {
  const file = findFile(config, options)
  const found = await lookToAttach(db, {
    table,
    events: options.events,
    isRecoverOnly: options.isRecoverOnly,
    known: file?.profiles.find((each) => each.table === table) ?? null,
    rules: { stages: config.stages, leaseTimeoutSec: config.leaseTimeoutSec, nullLeaseSec: config.reaper.nullLeaseSec },
    maxAttempts: config.maxAttempts,
    ladderMs: config.backoffLadderMs,
    queuedOrphanSec: config.reaper.queuedOrphanSec,
  })
  if (!found) {
    const meant = await meantTable(db, table)
    say(`there is no table ${table} in ${db.target}${meant === null ? '' : `, did you mean ${meant}?`}`)
    say(
      'Names are taken exactly as written, with their schema where it is not on the search path. bun run attach lists tables.',
    )
    return EXIT_CONFIGURATION
  }
  if (!options.isJson) print(attachmentText(found))
  const code = options.isApply && file ? await apply(db, found, file) : verdict(found)
  if (options.isJson) print(`${JSON.stringify({ ...found, isApplied: options.isApply && code === 0 }, null, 2)}\n`)
  return code
}

/** The file the entry belongs to. Without --apply, one that cannot be used is no reason to stop: nothing is written to it. */
function findFile(config: Config, { file, isApply }: AttachArguments): TablesFile | null {
  const path = file ?? config.tablesFile ?? './tables.json'
  try {
    return readTablesFile(path)
  } catch (error) {
    if (isApply || !(error instanceof ProfileError)) throw error
    say(`${error.message}\nGoing on without it.`)
    return null
  }
}

function verdict({ profile, entry, guesses, findings, sql }: Attachment): number {
  const isFit = profile !== null && !findings.some(({ level }) => level === 'error')
  if (!isFit) return 1
  if (doubtsOf(guesses).length > 0) sayDoubts(guesses)
  else if (entry !== null || sql.length > 0)
    say('\nNothing was written. The same with --apply runs the SQL and writes the entry.')
  return 0
}

async function apply(db: Database, found: Attachment, file: TablesFile): Promise<number> {
  const { profile, entry, guesses, findings } = found
  if (profile === null || findings.some(({ level }) => level === 'error')) {
    say('\nNot applied, nothing was written: see what stands against the table.')
    return 1
  }
  if (doubtsOf(guesses).length > 0) {
    sayDoubts(guesses)
    return 1
  }
  const steps = await migrate(db, target.url, {
    tables: [profile],
    isAttached: true,
    maxAttempts: config.maxAttempts,
    onProgress: say,
  })
  // The entry is written only for a table that the reaper would take.
  await openTable(db, profile)
  if (entry) addEntry(file, entry)
  say(
    `\n${db.target}: ${steps.length} statements done; ${entry ? `entry written to ${file.path}` : `${file.path} is as it was`}`,
  )
  say(`Next: LEASEHOLD_TABLES=${shellWord(file.path)} bun run doctor`)
  say(`Then: LEASEHOLD_TABLES=${shellWord(file.path)} bun run start:reaper`)
  return 0
}

function sayDoubts(guesses: Attachment['guesses']): void {
  say('\nNot sure enough to be applied; nothing was written:')
  for (const { place, chosen, why } of doubtsOf(guesses)) say(`  ${place} ${chosen ?? ''}: ${why}`)
  say(
    'Write the entry by hand, with the right names, into the file of tables; then LEASEHOLD_TABLES=FILE bun run migrate.',
  )
}

function readArgumentsOrExit(): AttachArguments {
  try {
    return readAttachArguments(process.argv.slice(2))
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    say(`attach: ${error.message}\n${ATTACH_USAGE}`)
    return process.exit(EXIT_CONFIGURATION)
  }
}

function shellWord(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

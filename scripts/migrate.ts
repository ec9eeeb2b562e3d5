/** bun run migrate [--print]: adds what the tables lack, or shows the SQL that would. */
import { openDatabase } from '../src/db/client.ts'
import { describeError, isConnectionError } from '../src/db/errors.ts'
import { migrate, planMigration } from '../src/db/migrate.ts'
import { EXIT_CONFIGURATION, findDatabase, migrationOf, readConfigOrExit, readTablesOrExit } from './support/program.ts'

const unknown = process.argv.slice(2).filter((argument) => argument !== '--print')
if (unknown.length > 0) {
  process.stderr.write(`bun run migrate knows only --print, not ${unknown.join(' ')}\n`)
  process.exit(EXIT_CONFIGURATION)
}
const isPrintOnly = process.argv.includes('--print')
const say = (line: string): boolean => process.stderr.write(`${line}\n`)

const config = readConfigOrExit()
const target = await findDatabase(config, { info: (_facts: unknown, line?: string) => say(line ?? '') })
const db = openDatabase({ url: target.url, queryTimeoutSec: 30, applicationName: 'leasehold migrate' })
const profiles = await readTablesOrExit(config, config.reaper.tables)
const options = { ...migrationOf(config, profiles), onProgress: say }

let exitCode = 0
try {
  const steps = isPrintOnly ? await planMigration(db, options) : await migrate(db, target.url, options)
  if (isPrintOnly) process.stdout.write(steps.map((step) => `${step.sql};\n`).join('\n'))
  say(
    steps.length === 0
      ? `${db.target}: nothing to do`
      : `${db.target}: ${steps.length} statements ${isPrintOnly ? 'to run' : 'done'}`,
  )
} catch (error) {
  const hint = isConnectionError(error)
    ? 'Is the database up, and is DATABASE_URL right?'
    : 'Nothing else was changed; it is safe to run again.'
  say(`migrate: ${describeError(error)}\n${hint}`)
  exitCode = 1
}
await db.close()
await target.stop()
process.exit(exitCode)

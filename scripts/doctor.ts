/** bun run doctor [--json]: what stands against the tables, the server and the settings, and what mends it. */
import { renderFindings } from '../src/cli/doctor.ts'
import { openDatabase } from '../src/db/client.ts'
import { examine } from '../src/db/doctor.ts'
import { describeError, isConnectionError } from '../src/db/errors.ts'
import { EXIT_CONFIGURATION, findDatabase, readConfigOrExit, readTablesOrExit } from './support/program.ts'

const unknown = process.argv.slice(2).filter((argument) => argument !== '--json')
if (unknown.length > 0) {
  process.stderr.write(`bun run doctor knows only --json, not ${unknown.join(' ')}\n`)
  process.exit(EXIT_CONFIGURATION)
}
const config = readConfigOrExit()
const profiles = await readTablesOrExit(config, config.reaper.tables)
const say = (line: string): boolean => process.stderr.write(`${line}\n`)
const target = await findDatabase(config, { info: (_facts: unknown, line?: string) => say(line ?? '') })
const db = openDatabase({ url: target.url, poolMax: 1, queryTimeoutSec: 30, applicationName: 'leasehold doctor' })

let exitCode = 1
try {
  const findings = await examine(db, profiles, {
    url: target.url,
    stages: config.stages,
    leaseTimeoutSec: config.leaseTimeoutSec,
    nullLeaseSec: config.reaper.nullLeaseSec,
    queuedOrphanSec: config.reaper.queuedOrphanSec,
    maxAttempts: config.maxAttempts,
    backoffLadderMs: config.backoffLadderMs,
    prepare: config.database.prepare,
    hasDispatcher: config.queueProvider !== 'poll',
    warnings: config.warnings,
  })
  const isFit = !findings.some(({ level }) => level === 'error')
  const tables = profiles.map(({ table }) => table)
  process.stdout.write(
    process.argv.includes('--json')
      ? `${JSON.stringify({ version: 1, database: db.target, tables, isFit, findings }, null, 2)}\n`
      : renderFindings(findings, tables),
  )
  exitCode = isFit ? 0 : 1
} catch (error) {
  const hint = isConnectionError(error) ? 'Is the database up, and is DATABASE_URL right?' : 'Nothing was changed.'
  say(`doctor: ${describeError(error)}\n${hint}`)
}
await db.close()
await target.stop()
process.exit(exitCode)

/** `migrate`: adds what the tables lack, or with --print shows the SQL that would. */
import { describeError, isConnectionError } from '../../db/errors.ts'
import { migrate as runMigration, planMigration } from '../../db/migrate.ts'
import { type CommandDefinition, EXIT } from '../command.ts'

export const migrate: CommandDefinition<{ print?: boolean }> = {
  usage: 'migrate',
  summary: 'add what the tables lack; --print only shows the SQL',
  configure: (command) => command.option('--print', 'show the SQL, for a migration tool of your own'),
  async run({ options, open, out, host }) {
    const { db, config, profiles, url } = await open({ tables: 'as they are', queryTimeoutSec: 30 })
    const isPrintOnly = options.print ?? false
    const plan = { ...host.migrationOf(config, profiles), onProgress: out.say }
    const steps = await (isPrintOnly ? planMigration(db, plan) : runMigration(db, url, plan)).catch(orSafe)
    const statements = steps.map(({ sql }) => sql)
    if (out.isJson) out.json({ database: db.target, isDone: !isPrintOnly, statements })
    else if (isPrintOnly) out.print(statements.map((sql) => `${sql};\n`).join('\n'))
    const what = `${steps.length} statements ${isPrintOnly ? 'to run' : 'done'}`
    out.say(`${db.target}: ${steps.length === 0 ? 'nothing to do' : what}`)
    return EXIT.done
  },
}

function orSafe(error: unknown): never {
  if (isConnectionError(error)) throw error
  throw new Error(`${describeError(error)}\nNothing else was changed; it is safe to run again.`, { cause: error })
}

/** `doctor`: what stands against the tables, the server and the settings, and what mends it. */
import { recoverySettings } from '../../config/config.ts'
import { examine } from '../../db/doctor.ts'
import { type CommandDefinition, EXIT } from '../command.ts'
import { renderFindings } from '../doctor.ts'

export const doctor: CommandDefinition = {
  usage: 'doctor',
  summary: 'what stands against the tables, and the SQL that mends it',
  async run({ open, out }) {
    const { db, config, profiles, url } = await open({ tables: 'as they are', poolMax: 1, queryTimeoutSec: 30 })
    const findings = await examine(db, profiles, {
      url,
      ...recoverySettings(config),
      prepare: config.database.prepare,
      hasDispatcher: config.queueProvider !== 'poll',
      warnings: config.warnings,
    })
    const isFit = !findings.some(({ level }) => level === 'error')
    const tables = profiles.map(({ table }) => table)
    if (out.isJson) out.json({ database: db.target, tables, isFit, findings })
    else out.print(renderFindings(findings, tables))
    return isFit ? EXIT.done : EXIT.unwell
  },
}

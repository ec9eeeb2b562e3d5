/** `config`: every setting in force, and where it came from. */
import { type SettingInForce, settingsInForce } from '../../config/describe.ts'
import { type CommandDefinition, EXIT } from '../command.ts'
import type { Column } from '../table.ts'

export const config: CommandDefinition<{ changed?: boolean }> = {
  usage: 'config',
  summary: 'every setting in force, and where it came from',
  configure: (command) => command.option('--changed', 'only those that the environment sets'),
  run({ options, host, out }) {
    // What cannot be used is said, and ends the program, before anything is shown as being in force.
    const { warnings } = host.readConfig()
    const all = settingsInForce()
    const settings = options.changed ? all.filter(({ source }) => source === 'environment') : all
    if (out.isJson) out.json({ settings, warnings })
    else out.table(COLUMNS, settings)
    for (const warning of warnings) out.say(`warning: ${warning}`)
    return Promise.resolve(EXIT.done)
  },
}

const COLUMNS: Column<SettingInForce>[] = [
  { title: 'setting', value: ({ name }) => name, style: ({ source }) => (source === 'environment' ? 'bold' : null) },
  { title: 'value', value: ({ value }) => value ?? '' },
  { title: 'from', value: ({ source }) => source },
  { title: 'overruled', value: ({ overruled }) => overruled.join(', ') },
]

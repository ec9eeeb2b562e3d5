/** What went wrong, in words that help, and the exit code it ends with. */
import type { Command, CommanderError } from 'commander'

import { describeError, isConnectionError, isTimeout } from '../db/errors.ts'
import { ProfileError } from '../db/profile-file.ts'
import { TableRejected } from '../db/table.ts'
import { hintAt } from '../job/closest.ts'
import { UnknownTable } from '../operator/operator.ts'
import { EXIT, type Exit, UsageError } from './command.ts'
import type { Host } from './host.ts'
import { Unreachable } from './session.ts'

export interface Failure {
  text: string
  exit: Exit
}

export function explainFailure(error: unknown, { host, command }: { host: Host; command: string }): Failure {
  if (error instanceof UsageError || error instanceof UnknownTable) {
    return { text: `${command}: ${error.message}\n${helpLine(host, command)}`, exit: EXIT.usage }
  }
  if (error instanceof ProfileError) return { text: error.message, exit: EXIT.unwell }
  if (error instanceof Unreachable) {
    const text = `${command}: ${error.message}\nIs the database up, and is DATABASE_URL right?`
    return { text, exit: EXIT.unreachable }
  }
  if (error instanceof TableRejected) {
    return { text: `${command}: ${error.message}\n${host.call('doctor')} says what mends it.`, exit: EXIT.unwell }
  }
  if (isTimeout(error)) {
    const text = `${command}: the database took too long: ${describeError(error)}\nIs it busy, or does somebody lock the table? QUERY_TIMEOUT_SEC says how long we wait.`
    return { text, exit: EXIT.unreachable }
  }
  if (isConnectionError(error)) {
    return { text: `${command}: the database went away: ${describeError(error)}`, exit: EXIT.unreachable }
  }
  return { text: `${command}: ${describeError(error)}`, exit: EXIT.unwell }
}

/** What commander says, in our way: what was wrong, what was expected, and the nearest right word. */
export function explainUsage(error: CommanderError, command: Command, host: Host): string {
  const name = command.parent === null ? '' : command.name()
  return `${name || host.call('')}: ${usageWords(error, command)}\n${helpLine(host, name)}`
}

function usageWords({ code, message }: CommanderError, command: Command): string {
  const [, word = ''] = /'([^']*)'/s.exec(message) ?? []
  switch (code) {
    case 'commander.unknownCommand': {
      const names = command.commands.map((each) => each.name())
      return `there is no command ${word}${hintAt(word, names) || `; there are ${names.join(', ')}`}`
    }
    case 'commander.unknownOption': {
      const flags = [command, command.parent].flatMap((each) => each?.options.map(({ long }) => long ?? '') ?? [])
      return `there is no option ${word}${hintAt(word, flags)}`
    }
    case 'commander.missingArgument':
      return `expected ${word}, got none`
    case 'commander.optionMissingArgument':
      return `${word.split(' ')[0]}: expected a value behind it`
    case 'commander.invalidArgument': {
      const [, flag, value, expected] = /option '(--[\w-]+).*' argument '(.*)' is invalid\. (.*)/s.exec(message) ?? []
      return flag === undefined ? message : `${flag}: ${expected}, got ${value === '' ? 'nothing' : value}`
    }
    case 'commander.excessArguments': {
      const expected = command.registeredArguments.map((each) => each.name()).join(' and ')
      return `expected ${expected ? `one ${expected}` : 'only options'}, got ${command.args.join(' and ')}`
    }
    default:
      return message.replace(/^error: /, '')
  }
}

function helpLine(host: Host, command: string): string {
  return `See ${host.call(command === '' ? '--help' : `${command} --help`)}`
}

/** What a command of `leasehold` is: its words and options, what it is given, and how it may end. */
import type { Command } from 'commander'

import type { Host } from './host.ts'
import type { Output } from './output.ts'
import type { Opening, Session } from './session.ts'

/** How a command ends. 130 and 143 say that a signal ended it. */
export const EXIT = {
  done: 0,
  /** It was found unhealthy, or not everything could be done. */
  unwell: 1,
  /** Wrong arguments or a configuration that cannot be used. */
  usage: 2,
  /** The database cannot be reached. */
  unreachable: 4,
  /** There is no such job, or nothing matched. */
  nothing: 5,
} as const

export type Exit = (typeof EXIT)[keyof typeof EXIT]

export interface CommandDefinition<Options extends object = object> {
  /** Its name and arguments, as commander reads them: `explain <id>`. */
  usage: string
  summary: string
  /** Command lines worth showing under its help, without the program's name. */
  examples?: readonly string[]
  /** What it gets to tidy up after the first Ctrl-C. */
  graceMs?: number
  /** Adds its own options; --json and --no-color are everybody's. */
  configure?(command: Command): unknown
  /** What is thrown ends the command with the exit code it stands for; see failure.ts. */
  run(context: Context<Options>): Promise<Exit>
}

export interface Context<Options extends object = object> {
  args: readonly string[]
  options: Options
  host: Host
  out: Output
  /** Settings, tables, database and operator. Closed when the command has ended. */
  open: (opening?: Opening) => Promise<Session>
  /** Said when somebody presses Ctrl-C and what is under way does not end in its grace: how far it came. */
  ifAbandoned: (sayHowFar: () => void) => void
}

/** Thrown for words on the command line that cannot be meant. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Every command of `leasehold`, in the order of its help. A new one is a file under commands/ and a line here. */
import type { CommandDefinition } from './command.ts'
import { status } from './commands/status.ts'

export const COMMANDS: readonly CommandDefinition[] = [status]

/** Every command of `leasehold`, in the order of its help. A new one is a file under commands/ and a line here. */
import type { CommandDefinition } from './command.ts'
import { failures } from './commands/failures.ts'
import { leases } from './commands/leases.ts'
import { list } from './commands/list.ts'
import { status } from './commands/status.ts'
import { workers } from './commands/workers.ts'

export const COMMANDS: readonly CommandDefinition[] = [status, list, leases, failures, workers]

/** Every command of `leasehold`, in the order of its help. A new one is a file under commands/ and a line here. */
import type { CommandDefinition } from './command.ts'
import { cancel, endLease, retry } from './commands/actions.ts'
import { attach } from './commands/attach.ts'
import { config } from './commands/config.ts'
import { doctor } from './commands/doctor.ts'
import { drain } from './commands/drain.ts'
import { events } from './commands/events.ts'
import { explain } from './commands/explain.ts'
import { failures } from './commands/failures.ts'
import { leases } from './commands/leases.ts'
import { list } from './commands/list.ts'
import { migrate } from './commands/migrate.ts'
import { prove } from './commands/prove.ts'
import { reap } from './commands/reap.ts'
import { status } from './commands/status.ts'
import { workers } from './commands/workers.ts'

export const COMMANDS: readonly CommandDefinition[] = [
  status,
  leases,
  list,
  failures,
  workers,
  explain,
  events,
  retry,
  cancel,
  endLease,
  reap,
  drain,
  doctor,
  attach,
  migrate,
  prove,
  config,
]

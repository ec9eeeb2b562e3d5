/** What the process around the commands gives them: only scripts read the environment, trap signals and exit. */
import type { Config } from '../config/config.ts'
import type { Database } from '../db/client.ts'
import type { MigrationOptions } from '../db/migrate.ts'
import type { Profile } from '../db/profile.ts'
import type { Dispatcher } from '../dispatch/dispatcher.ts'
import type { Operator, OperatorOptions } from '../operator/operator.ts'

export interface Host {
  version: string
  /** How a person calls a command here: `leasehold status`, or `bun run cli status`. */
  call(command: string): string
  /** Who acts, unless they say otherwise: `user@host`. */
  actor: string
  /** False with NO_COLOR. */
  hasColour: boolean
  /** For programs that a command starts. */
  environment: Readonly<Record<string, string>>
  /** Aborted at the first Ctrl-C. */
  stopped: AbortSignal
  /** The settings and the tables in force; each ends the program when they cannot be used. */
  readConfig(): Config
  readTables(config: Config): Promise<Profile[]>
  findDatabase(config: Config): Promise<{ url: string; isEmbedded: boolean; stop(): Promise<void> }>
  openDispatcher(config: Config, url: string): Promise<Dispatcher | undefined>
  operatorOf(
    config: Config,
    tables: readonly Profile[],
    db: Database,
    extras: Pick<OperatorOptions, 'dispatch'>,
  ): Operator
  migrationOf(config: Config, tables: Profile[]): MigrationOptions
}

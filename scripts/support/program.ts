/** What every program of ours does around its work: read the settings, find the database, stop on a signal. */
import type { Logger } from 'pino'

import { type Config, ConfigError, loadConfig } from '../../src/config/config.ts'
import { startEmbedded } from '../../src/db/embedded.ts'
import type { MigrationOptions } from '../../src/db/migrate.ts'
import type { Profile } from '../../src/db/profile.ts'
import { loadProfiles, pickProfiles, ProfileError } from '../../src/db/profile-file.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'

/** Exit codes: 0 done, 1 failed, 2 usage or configuration. */
export const EXIT_CONFIGURATION = 2

/** The settings, or the end of the program with all faults listed. */
export function readConfigOrExit(): Config {
  try {
    return loadConfig()
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    process.stderr.write(`${error.message}\nEvery variable is explained in .env.example.\n`)
    return process.exit(EXIT_CONFIGURATION)
  }
}

/** The tables in force: those of LEASEHOLD_TABLES, picked by name where names are set, else in our own spelling. Or the end. */
export async function readTablesOrExit(config: Config, names: string[] | null): Promise<Profile[]> {
  try {
    if (config.tablesFile === null) return (names ?? []).map(snakeCaseProfile)
    return pickProfiles(await loadProfiles(config.tablesFile), names, config.tablesFile)
  } catch (error) {
    if (!(error instanceof ProfileError)) throw error
    process.stderr.write(`${error.message}\ndocs/attach.md explains every entry; bun run attach TABLE proposes one.\n`)
    return process.exit(EXIT_CONFIGURATION)
  }
}

/** What a migration of these tables must know. */
export function migrationOf(config: Config, profiles: Profile[]): MigrationOptions {
  const { maxAttempts, stages, backoffLadderMs } = config
  const functions = { stages, backoffLadderMs }
  return { tables: profiles, maxAttempts, isAttached: config.tablesFile !== null, functions }
}

export interface Target {
  url: string
  isEmbedded: boolean
  /** We started it, so it ends with us. */
  isOurs: boolean
  stop(): Promise<void>
}

/** DATABASE_URL if set, and then nothing embedded is touched; else the embedded server. */
export async function findDatabase(config: Config, log: Pick<Logger, 'info'>): Promise<Target> {
  if (config.database.url !== null)
    return { url: config.database.url, isEmbedded: false, isOurs: false, stop: () => Promise.resolve() }
  log.info({ dataDir: config.database.dataDir }, 'DATABASE_URL is not set: using an embedded PostgreSQL')
  const server = await startEmbedded({ dataDir: config.database.dataDir })
  return { url: server.url, isEmbedded: true, isOurs: server.isOurs, stop: () => server.stop() }
}

/** Resolves at the first SIGTERM or SIGINT (PM2 sends the latter); a second one ends the program at once. */
export function untilStopped(): Promise<NodeJS.Signals> {
  return new Promise((stop) => {
    let isStopping = false
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.on(signal, () => {
        if (isStopping) process.exit(signal === 'SIGTERM' ? 143 : 130)
        isStopping = true
        stop(signal)
      })
    }
  })
}

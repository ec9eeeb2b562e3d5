#!/usr/bin/env bun
/** leasehold: the command line. What it can do is in src/cli; here are settings, signals and the exit. */
import { hostname, userInfo } from 'node:os'

import packageJson from '../package.json' with { type: 'json' }
import type { Host } from '../src/cli/host.ts'
import { runCli } from '../src/cli/program.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { silentLog } from '../src/telemetry/log.ts'
import { openDispatcher } from './support/dispatch.ts'
import { operatorOf } from './support/operator.ts'
import { findDatabase, migrationOf, readConfigOrExit, readTablesOrExit, untilStopped } from './support/program.ts'

const SIGNAL_CODES: Partial<Record<NodeJS.Signals, number>> = { SIGINT: 130, SIGTERM: 143 }
const { env } = process
const stopping = new AbortController()
let signalCode: number | undefined
void untilStopped().then((signal) => {
  signalCode = SIGNAL_CODES[signal]
  stopping.abort()
})
surviveLostSocketWrites(() => undefined)

const host: Host = {
  version: packageJson.version,
  call: (command) => [programName(command), command].join(' '),
  actor: `${userName()}@${hostname()}`,
  hasColour: !env.NO_COLOR,
  stopped: stopping.signal,
  readConfig: readConfigOrExit,
  readTables: (config) => readTablesOrExit(config, config.reaper.tables),
  findDatabase: (config) => findDatabase(config, { info: (_facts: unknown, line?: string) => say(line ?? '') }),
  openDispatcher: (config, url) => openDispatcher(config, url, silentLog),
  operatorOf,
  migrationOf,
}

const exit = await runCli(process.argv.slice(2), host)
process.exit(signalCode ?? exit)

/** As the person called us, so that what we tell them to run can be run: `bun run cli status`, `npm run doctor`. */
function programName(command: string): string {
  const isNpm = env.npm_config_user_agent?.startsWith('npm/') ?? false
  const [name = ''] = command.split(' ')
  const runner = isNpm ? 'npm run' : 'bun run'
  if (env.npm_lifecycle_event === 'cli') return isNpm ? `${runner} cli --` : `${runner} cli`
  return name !== '' && env.npm_lifecycle_event === name ? runner : 'leasehold'
}

function userName(): string {
  try {
    return userInfo().username
  } catch {
    return env.USER ?? 'somebody'
  }
}

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}

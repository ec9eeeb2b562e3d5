#!/usr/bin/env bun
/** leasehold: the command line. What it can do is in src/cli; here are settings, signals and the exit. */
import { hostname, userInfo } from 'node:os'

import packageJson from '../package.json' with { type: 'json' }
import type { Config } from '../src/config/config.ts'
import type { Host } from '../src/cli/host.ts'
import { runCli } from '../src/cli/program.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { silentLog } from '../src/telemetry/log.ts'
import { openDispatcher } from './support/dispatch.ts'
import { operatorOf } from './support/operator.ts'
import {
  findDatabase,
  migrationOf,
  readConfigOrExit,
  readTablesOrExit,
  type Target,
  untilStopped,
} from './support/program.ts'

const SIGNAL_CODES: Partial<Record<NodeJS.Signals, number>> = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 }
/** Commands with a script of their own in package.json. */
const OWN_SCRIPTS: ReadonlySet<string> = new Set(['doctor', 'attach', 'migrate'])
const { env } = process
const stopping = new AbortController()
let signalCode: number | undefined
const stop = (signal: NodeJS.Signals): void => {
  signalCode = SIGNAL_CODES[signal]
  stopping.abort()
}
void untilStopped().then(stop)
// The terminal has gone: a database that was started for this command must not stay behind.
process.once('SIGHUP', stop)
surviveLostSocketWrites(() => undefined)

const host: Host = {
  version: packageJson.version,
  call,
  actor: `${userName()}@${hostname()}`,
  hasColour: !env.NO_COLOR,
  environment: Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  ),
  stopped: stopping.signal,
  readConfig: readConfigOrExit,
  readTables: (config) => readTablesOrExit(config, config.reaper.tables),
  findDatabase: findOrStart,
  openDispatcher: (config, url) => openDispatcher(config, url, silentLog),
  operatorOf,
  migrationOf,
}

const exit = await runCli(process.argv.slice(2), host)
process.exit(signalCode ?? exit)

/** As the person called us, so that what we tell them to run can be run: `leasehold status`, or through package.json. */
function call(command: string): string {
  const script = env.npm_lifecycle_event ?? ''
  if (script !== 'cli' && !OWN_SCRIPTS.has(script)) return `leasehold ${command}`.trim()
  const [name = '', ...rest] = command.split(' ')
  const [run, words] = OWN_SCRIPTS.has(name) ? [name, rest.join(' ')] : ['cli', command]
  const isNpm = env.npm_config_user_agent?.startsWith('npm/') ?? false
  return isNpm ? `npm run ${run}${words && ` -- ${words}`}` : `bun run ${run} ${words}`.trim()
}

function userName(): string {
  const { SUDO_USER, USER, LOGNAME } = env
  const { uid } = userInfo()
  // Bun knows no names but those of the environment.
  return SUDO_USER ?? USER ?? LOGNAME ?? (uid === 0 ? 'root' : `uid-${uid}`)
}

/** Without DATABASE_URL it is the one that the reaper runs. When nobody runs it, it is started for as long as we need it. */
async function findOrStart(config: Config): Promise<Target> {
  const inform = (): void => say(`DATABASE_URL is not set: using the embedded database in ${config.database.dataDir}`)
  const target = await findDatabase(config, { info: inform })
  if (target.isOurs) say('Nobody runs it, so it was started for this command only.')
  return target
}

function say(line: string): void {
  process.stderr.write(`${line}\n`)
}

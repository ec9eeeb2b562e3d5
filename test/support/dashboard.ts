/** A dashboard on a database of a test's own, and a client that can say anything HTTP allows. */
import { createPassLog, type PassLog } from '../../src/dashboard/passes.ts'
import { startDashboard } from '../../src/dashboard/server.ts'
import { settingsInForce } from '../../src/config/describe.ts'
import { type Config, loadConfig } from '../../src/config/config.ts'
import type { Database } from '../../src/db/client.ts'
import type { Profile } from '../../src/db/profile.ts'
import { snakeCaseProfile } from '../../src/db/profiles.ts'
import { operatorOf } from '../../scripts/support/operator.ts'
import { silentLog } from '../../src/telemetry/log.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'

export const TOKEN = 'a-token-for-tests-only'

export interface TestDashboard extends AsyncDisposable {
  url: string
  passes: PassLog
  config: Config
}

export interface TestDashboardOptions {
  db: Database
  tables?: readonly Profile[]
  env?: Record<string, string>
}

/** With a token, unless OPERATOR_TOKEN is given as an empty text. */
export function openTestDashboard({ db, tables, env = {} }: TestDashboardOptions): TestDashboard {
  const all = Object.entries({ OPERATOR_TOKEN: TOKEN, ...env }).filter(([, value]) => value !== '')
  const config = loadConfig(Object.fromEntries(all))
  const profiles = tables ?? ['jobs', 'asr_jobs'].map(snakeCaseProfile)
  const metrics = createMetrics({ stages: ['clip'], tables: profiles.map(({ table }) => table) })
  const passes = createPassLog()
  const server = startDashboard({
    ...config.dashboard,
    host: config.http.host,
    port: 0,
    metrics,
    health: { isAlive: () => true, obstacles: () => [] },
    operator: operatorOf(config, profiles, db, { metrics }),
    passes,
    settings: settingsInForce(Object.fromEntries(all)),
    database: db.target,
    cli: 'bun run cli',
    shutdownTimeoutSec: 25,
    log: silentLog,
  })
  if (!server.ok) throw new Error(server.error)
  const { url, stop } = server.value
  return { url, passes, config, [Symbol.asyncDispose]: stop }
}

export interface Reply {
  status: number
  headers: Headers
  text: string
  json: () => Record<string, unknown>
}

export interface Ask {
  method?: string
  headers?: Record<string, string>
  body?: string | undefined
}

/** On a connection of its own, with just these headers. */
export async function ask(url: string, { method = 'GET', headers = {}, body }: Ask = {}): Promise<Reply> {
  const init = {
    method,
    headers,
    redirect: 'manual',
    keepalive: false,
    ...(body === undefined ? {} : { body }),
  } as const
  const reply = await fetch(url, init)
  const text = await reply.text()
  return { status: reply.status, headers: reply.headers, text, json: () => JSON.parse(text) as Record<string, unknown> }
}

export const BEARER = { authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' }

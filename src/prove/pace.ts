/** How fast a proof goes, and the environment of its programs: the person's own but for every setting of ours. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { SETTINGS, STAGE_CONCURRENCY, STAGE_FACTOR, STAGE_STALL } from '../config/settings.ts'

export interface Pace {
  leaseSec: number
  heartbeatSec: number
  firstRetryMs: number
}

/** The shape of the settings is kept: a lease may miss two beats. */
export function paceOf(leaseSec: number): Pace {
  return { leaseSec, heartbeatSec: leaseSec / 3, firstRetryMs: 100 }
}

export interface Surroundings {
  /** What the person's own shell gives: proxies, certificates, PATH. */
  environment: Readonly<Record<string, string>>
  url: string
  prepare: boolean
  /** A folder for the file of tables, for storage and for scratch. */
  folder: string
}

export function environmentOf({ environment, url, prepare, folder }: Surroundings, pace: Pace): Record<string, string> {
  const { leaseSec, heartbeatSec, firstRetryMs } = pace
  return {
    ...Object.fromEntries(Object.entries(environment).filter(([name]) => !isOurs(name))),
    DATABASE_URL: url,
    DATABASE_PREPARE: prepare ? 'on' : 'off',
    QUERY_TIMEOUT_SEC: String(Math.max(1, heartbeatSec)),
    LEASEHOLD_TABLES: tablesFileIn(folder),
    HEARTBEAT_INTERVAL_SEC: String(heartbeatSec),
    DEFAULT_LEASE_SEC: String(leaseSec),
    JOB_BACKOFF_MS_BASE: String(firstRetryMs),
    JOB_BACKOFF_MS_MAX: String(firstRetryMs),
    JOB_MAX_ATTEMPTS: '5',
    // Somebody else's load must not make the workers of the proof pause.
    LOAD_THRESHOLD: '1000',
    MAX_CONCURRENCY: '1',
    POLL_INTERVAL_SEC: '0.1',
    WORKER_HANDLERS: fileURLToPath(import.meta.resolve('./handler.ts')),
    STORAGE_DIR: folder,
    SCRATCH_DIR: folder,
    HTTP_PORT: '0',
    WORKER_HTTP_PORT: '0',
  }
}

export function tablesFileIn(folder: string): string {
  return join(folder, 'tables.json')
}

const NAMES: ReadonlySet<string> = new Set(Object.values(SETTINGS).flatMap(({ names }) => [...names]))
/** Who waits for a sign of ours does not mean the proof. */
const SERVICE_MANAGERS = /^(NOTIFY_SOCKET|WATCHDOG_\w+|NODE_CHANNEL_\w+|LEASEHOLD_\w+)$/

function isOurs(name: string): boolean {
  return (
    NAMES.has(name) || [STAGE_FACTOR, STAGE_CONCURRENCY, STAGE_STALL, SERVICE_MANAGERS].some((each) => each.test(name))
  )
}

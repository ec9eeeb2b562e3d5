/** Starts a worker as a user would, with its notes, its storage and its scratch in a folder of the test's own. */
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'

import { openFolder } from './open-folder.ts'
import { type Program, ROOT, runProgram } from './program.ts'

/** Heartbeats every half second, clip leases of three seconds, quick retries. */
export const TEST_PACE = {
  HEARTBEAT_SEC: '0.5',
  DEFAULT_LEASE_SEC: '3',
  JOB_BACKOFF_MS_BASE: '200',
  JOB_BACKOFF_MS_MAX: '400',
  POLL_INTERVAL_SEC: '0.1',
  QUERY_TIMEOUT_SEC: '1',
  WORKER_HTTP_PORT: '0',
}

export interface Place extends Disposable {
  env: Record<string, string>
  storage: string
  /** The lines that the handlers wrote down. */
  notes(): string[]
}

export function openPlace(): Place {
  const folder = openFolder('work')
  const storage = join(folder, 'storage')
  mkdirSync(storage)
  const notesFile = join(folder, 'notes')
  return {
    storage,
    env: { STORAGE_DIR: storage, SCRATCH_DIR: join(folder, 'scratch'), TEST_NOTES: notesFile },
    notes: () => (existsSync(notesFile) ? readFileSync(notesFile, 'utf8').trim().split('\n') : []),
    [Symbol.dispose]: () => rmSync(folder, { recursive: true, force: true }),
  }
}

export function startWorker(url: string, place: Place, env: Record<string, string> = {}, cwd = ROOT): Program {
  const handlers = join(ROOT, 'test', 'support', 'handlers', 'plain.ts')
  const all = { ...TEST_PACE, ...place.env, DATABASE_URL: url, WORKER_HANDLERS: handlers, ...env }
  return runProgram('worker.ts', all, [], cwd)
}

/** The worker alone, as under a process manager that only restarts: nobody gives its leases back. */
export function startUnsupervised(
  url: string,
  place: Place,
  holder: string,
  env: Record<string, string> = {},
): Program {
  return startWorker(url, place, { LEASEHOLD_HOLDER: holder, ...env })
}

/** The process id of the worker under its supervisor. */
export async function childPid(worker: Program): Promise<number> {
  return Number((await worker.said('worker started')).childPid)
}

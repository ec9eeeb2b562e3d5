/** The small parent of a worker: sees its child die, gives its leases back at once with the cause, and starts it again. */
import type { ChildProcess } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { describeError } from '../db/errors.ts'
import type { Log } from '../telemetry/log.ts'
import { newHolder } from './holder.ts'

export interface SupervisorOptions {
  /** Starts the worker under the name of this holder, and tells it how many jobs of its predecessors were given back since. */
  spawnWorker: (holder: string, recoveredJobs: number) => ChildProcess
  /** Gives back whatever the holder held; answers how many jobs. */
  giveBack: (holder: string, cause: string) => Promise<number>
  log: Log
  /** An exit code that no restart can mend. */
  hopelessCode: number
}

export interface Supervisor {
  /** Resolves with the exit code for the parent, once the child has ended for good. */
  ended: Promise<number>
  /** Passes a signal on to the child; after the first one it is not started again. */
  stop(signal: NodeJS.Signals): void
}

/** A worker that lived this long did not crash at its start. */
const SETTLED_MS = 10_000
const FIRST_RESTART_MS = 200
const LAST_RESTART_MS = 10_000
/** How long the leases of a dead worker are tried to be given back; then they are left to run out. */
const GIVE_BACK_LIMIT_MS = 60_000

export function superviseWorker(options: SupervisorOptions): Supervisor {
  const { log } = options
  const stopping = new AbortController()
  let child: ChildProcess | null = null
  let unreported = 0

  async function run(): Promise<number> {
    let crashes = 0
    for (;;) {
      const holder = newHolder()
      const startedAt = performance.now()
      const oomKills = countOomKills()
      child = options.spawnWorker(holder, unreported)
      unreported = 0
      log.info({ holder, childPid: child.pid }, 'worker started')
      const { code, signal } = await endOf(child)
      child = null
      const isAskedFor = stopping.signal.aborted && (code === 0 || signal === 'SIGTERM' || signal === 'SIGINT')
      if (isAskedFor) {
        // Usually nothing is left; what could not be released, or was claimed without our hearing of it, goes back now.
        await giveBackInTime(holder, 'shutdown')
        return 0
      }
      // Also an exit with code 0, when nobody asked for it: some handler ended the whole process.
      const cause = describeEnd(code, signal, countOomKills() > oomKills)
      crashes = performance.now() - startedAt > SETTLED_MS ? 1 : crashes + 1
      log.error({ holder, cause, crashes }, 'worker ended')
      const given = giveBackInTime(holder, cause)
      if (stopping.signal.aborted || code === options.hopelessCode) {
        await given
        return code ?? 1
      }
      // The next worker need not wait for the leases of the last one.
      const pauseMs = Math.min(FIRST_RESTART_MS * 2 ** (crashes - 1), LAST_RESTART_MS)
      if (crashes > 3) log.error({ crashes, pauseMs }, 'worker crashes again and again')
      await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
      if (stopping.signal.aborted) {
        await given
        return 0
      }
    }
  }

  async function giveBackInTime(holder: string, cause: string): Promise<void> {
    const deadline = performance.now() + GIVE_BACK_LIMIT_MS
    let isSecondLook = false
    for (let pauseMs = 100; ; pauseMs = Math.min(pauseMs * 2, 2000)) {
      try {
        const jobs = await options.giveBack(holder, cause)
        if (jobs > 0 || !isSecondLook) log.info({ holder, cause, jobs }, 'leases given back')
        unreported += jobs
        if (stopping.signal.aborted || isSecondLook) return
        // A statement of the dead worker may still have been under way on the server.
        isSecondLook = true
        await sleep(1000, undefined, { signal: stopping.signal }).catch(() => undefined)
      } catch (error) {
        if (performance.now() > deadline || stopping.signal.aborted) {
          log.error({ holder, error: describeError(error) }, 'leases could not be given back; they will run out')
          return
        }
        await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
      }
    }
  }

  return {
    ended: run(),
    stop(signal) {
      child?.kill(signal)
      stopping.abort()
    },
  }
}

function endOf(child: ChildProcess): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
  return new Promise((done) => {
    child.once('exit', (code, signal) => done({ code, signal }))
    child.once('error', () => done({ code: 1, signal: null }))
  })
}

export function describeEnd(code: number | null, signal: NodeJS.Signals | null, wasOutOfMemory: boolean): string {
  if (signal === 'SIGKILL' && wasOutOfMemory) return 'out of memory (SIGKILL)'
  return signal === null ? `exit code ${code ?? 'unknown'}` : `killed by ${signal}`
}

/** How often the kernel has killed for memory in our cgroup, where it tells; version 2, then version 1. */
function countOomKills(): number {
  const groups = existsSync('/proc/self/cgroup') ? readFileSync('/proc/self/cgroup', 'utf8').split('\n') : []
  for (const line of groups) {
    const [, controllers = '', path = ''] = line.split(':')
    const file =
      controllers === '' ? `/sys/fs/cgroup${path}/memory.events` : `/sys/fs/cgroup/memory${path}/memory.oom_control`
    if (controllers !== '' && !controllers.split(',').includes('memory')) continue
    if (!existsSync(file)) continue
    return Number(/^oom_kill (\d+)$/m.exec(readFileSync(file, 'utf8'))?.[1] ?? 0)
  }
  return 0
}

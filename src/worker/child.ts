/** Runs programs for a handler. They die with the worker and are ended as a group with the attempt; only exit code 0 is success. */
import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import type { Log } from '../telemetry/log.ts'
import { type ChildEnd, childError, stoppedError } from './child-error.ts'
import { readOutput } from './child-output.ts'
import { endGroup, isGroupAlive, newGroup, type ProcessGroup, withDeathSignal } from './process-group.ts'

export interface RunOptions {
  cwd?: string
  /** The program's whole environment; without it, the worker's own. */
  env?: Record<string, string>
  /** How long the output will be. With it, ffmpeg's `-progress pipe:1` is read from standard output, */
  durationMs?: number
  /** and told here, 0 to 100; 100 only after exit code 0. */
  onProgress?: (pct: number) => void | Promise<void>
  /** Every line of standard output and error that is not empty. An error thrown here ends the program and is the answer. */
  onLine?: (line: string) => void | Promise<void>
  stdin?: string | Uint8Array
}

/** The last 64 kB of each. */
export interface Output {
  stdout: string
  stderr: string
}

/** Answers when the program has ended and its output is closed: what it left in the background is waited for, too. */
export type Run = (command: readonly string[], options?: RunOptions) => Promise<Output>

export interface Runner {
  run: Run
  /** Ends every program still running, and whatever earlier ones left behind. */
  killAll: () => Promise<void>
}

/** How long we wait for the rest once a group is ended: a process that left the group may hold the output open for ever, */
const REST_LIMIT_MS = 500

/** and one that is stuck in the kernel (a dead network disk) does not even take its SIGKILL. */
const UNCOLLECTED: ChildEnd = { exitCode: null, signal: 'SIGKILL' }

export function createRunner({
  signal,
  log,
  graceMs = 2000,
}: {
  signal: AbortSignal
  log: Log
  graceMs?: number
}): Runner {
  const groups = new Set<ProcessGroup>()
  signal.addEventListener('abort', () => void killAll(), { once: true })
  return { run, killAll }

  async function run(command: readonly string[], options: RunOptions = {}): Promise<Output> {
    signal.throwIfAborted()
    const program = basename(command[0] ?? '')
    if (program === '') throw childError('', { exitCode: null, signal: null, startError: 'ENOENT' }, '')
    const child = start(withDeathSignal(command), options)
    const group = newGroup(child.pid)
    groups.add(group)
    log.debug({ program, pid: child.pid }, 'child started')

    const mishaps: unknown[] = []
    const output = readOutput(child, options, (error) => {
      // When the answer is given already, the log is the only place left to say it.
      log.warn({ program, error: String(error) }, 'a listener of a child failed')
      mishaps.push(error)
      void end(group)
    })
    const closed = new Promise((done) => child.once('close', done))
    const ended = await Promise.race([endOf(child, options), afterEnding(group, UNCOLLECTED)])
    group.isLeaderGone = ended !== UNCOLLECTED
    const isFailure = ended.exitCode !== 0
    const isStopped = group.isEnding
    // What a failed program has started must not go on, and its failure is told now.
    if (isFailure) await end(group)
    await Promise.race([closed, afterEnding(group, null)])
    child.stdout?.destroy()
    child.stderr?.destroy()
    // When we end it, the answer comes once nothing of it can write any more.
    if (group.isEnding) await group.gone.promise
    else if (!isGroupAlive(group)) groups.delete(group)

    signal.throwIfAborted()
    if (mishaps.length > 0) throw mishaps[0]
    const { stdout, stderr } = output()
    if (!isFailure && !group.isEnding) {
      if (options.durationMs !== undefined) await options.onProgress?.(100)
      return { stdout, stderr }
    }
    const error =
      isStopped || !isFailure ? stoppedError(program, ended, stderr) : childError(command[0] ?? '', ended, stderr)
    log.warn({ program, ...ended, stderr: error.stderrTail }, 'child failed')
    throw error
  }

  async function killAll(): Promise<void> {
    await Promise.all([...groups].map(end))
  }

  async function end(group: ProcessGroup): Promise<void> {
    await endGroup(group, graceMs, () => log.warn({ pid: group.pid, graceMs }, 'child did not stop; killing it'))
    groups.delete(group)
  }
}

function start(command: readonly string[], { cwd, env, stdin }: RunOptions): ChildProcess {
  const [program = '', ...args] = command
  const child = spawn(program, args, {
    ...(cwd === undefined ? {} : { cwd }),
    ...(env === undefined ? {} : { env }),
    stdio: [stdin === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
    // A group of its own, so that all of it can be ended, and a Ctrl-C in the terminal reaches only us.
    detached: true,
  })
  // A program that ends before it has read its input is no error of ours (EPIPE).
  child.stdin?.on('error', () => undefined)
  child.stdin?.end(stdin)
  return child
}

async function afterEnding<T>(group: ProcessGroup, value: T): Promise<T> {
  await group.gone.promise
  return sleep(REST_LIMIT_MS, value)
}

function endOf(child: ChildProcess, { cwd }: RunOptions): Promise<ChildEnd> {
  return new Promise((done) => {
    child.once('exit', (exitCode, signal) => done({ exitCode, signal }))
    child.on('error', (error: NodeJS.ErrnoException) => {
      // A missing folder is told with the same code as a missing program.
      const startError =
        cwd !== undefined && !existsSync(cwd) ? `there is no folder ${cwd}` : (error.code ?? error.message)
      done({ exitCode: null, signal: null, startError })
    })
  })
}

/** The programs of the demo, as a user would start them: the reaper and the workers, each a process that can be hurt. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const ROOT = join(import.meta.dirname, '..', '..')
/** Enough of a log to say why a program did not start. */
const KEPT_LINES = 20

export type LogLine = Record<string, unknown> & { msg?: string }

interface Program {
  process: ChildProcess
  ended: Promise<void>
  /** What it said last. */
  tail(): string
}

/** In a group of its own: a Ctrl-C in the terminal is for the demo, which stops everybody in order. */
function startProgram(script: string, env: Record<string, string>, onLine: (line: LogLine) => void): Program {
  const child = spawn(process.execPath, ['--no-env-file', join(ROOT, 'scripts', script)], {
    // Where bunfig.toml says that no child outlives its parent, not even by SIGKILL.
    cwd: ROOT,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const kept: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    let rest = ''
    stream?.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n')
      rest = lines.pop() ?? ''
      kept.push(...lines)
      kept.splice(0, kept.length - KEPT_LINES)
      for (const line of lines) if (line.startsWith('{')) onLine(parse(line))
    })
  }
  const ended = new Promise<void>((done) => {
    child.once('exit', () => done())
    child.once('error', () => done())
  })
  return { process: child, ended, tail: () => kept.join('\n') }
}

export interface CastReaper {
  /** Its address, once it listens. */
  http: Promise<string>
  stop(): Promise<void>
  kill(): Promise<void>
}

export function castReaper(env: Record<string, string>): CastReaper {
  const address = Promise.withResolvers<string>()
  const program = startProgram('reaper.ts', env, (line) => {
    if (line.msg === 'reaper started') address.resolve(String(line.http))
  })
  void program.ended.then(() => address.reject(new Error(`the reaper ended:\n${program.tail()}`)))
  address.promise.catch(() => undefined)
  return {
    http: address.promise,
    stop: () => stopProgram(program),
    async kill() {
      program.process.kill('SIGKILL')
      await program.ended
    },
  }
}

export interface CastWorker {
  name: string
  state(): 'starting' | 'up' | 'frozen' | 'down'
  /** Under which name it claims jobs: another one after every death. */
  holder(): string | null
  /** When its supervisor said that it had died, in milliseconds since 1970; null as long as it has not. */
  deathSeenAtMs(): number | null
  /** Leases it was told it has lost, so far. */
  lostLeases(): number
  start(): void
  ready(): Promise<void>
  /** SIGKILL to the worker alone: its supervisor sees it die. */
  crash(): void
  /** SIGKILL to both, as when the machine goes dark: nobody is left to say anything. */
  cutPower(): Promise<void>
  freeze(): void
  thaw(): void
  stop(): Promise<void>
}

export function castWorker(name: string, env: Record<string, string>): CastWorker {
  let program: Program | null = null
  let pid: number | null = null
  let state: ReturnType<CastWorker['state']> = 'down'
  let holder: string | null = null
  let deathSeenAtMs: number | null = null
  let lost = 0
  let ready = Promise.withResolvers<void>()

  function hear(line: LogLine): void {
    if (line.msg === 'worker started') [pid, holder] = [Number(line.childPid), String(line.holder)]
    if (line.msg === 'worker ended') [pid, state, deathSeenAtMs] = [null, 'starting', Date.parse(String(line.time))]
    if (line.msg === 'lease:lost') lost += 1
    if (line.msg !== 'worker ready') return
    state = 'up'
    ready.resolve()
  }

  return {
    name,
    state: () => state,
    holder: () => holder,
    deathSeenAtMs: () => deathSeenAtMs,
    lostLeases: () => lost,
    start() {
      state = 'starting'
      const mine = startProgram('worker.ts', env, (line) => mine === program && hear(line))
      program = mine
      ready = Promise.withResolvers()
      const { reject, promise } = ready
      promise.catch(() => undefined)
      void mine.ended.then(() => reject(new Error(`${name} ended:\n${mine.tail()}`)))
    },
    ready: () => ready.promise,
    crash() {
      state = 'starting'
      signal(pid, 'SIGKILL')
    },
    async cutPower() {
      const [child, supervisor] = [pid, program]
      program = null
      pid = null
      state = 'down'
      signal(supervisor?.process.pid, 'SIGKILL')
      signal(child, 'SIGKILL')
      await supervisor?.ended
    },
    freeze() {
      state = 'frozen'
      signal(pid, 'SIGSTOP')
    },
    thaw() {
      state = 'up'
      signal(pid, 'SIGCONT')
    },
    async stop() {
      signal(pid, 'SIGCONT')
      if (program) await stopProgram(program)
      state = 'down'
    },
  }
}

/** Asked first, then made to. */
async function stopProgram(program: Program): Promise<void> {
  const { process: child, ended } = program
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGTERM')
  const isLate = await Promise.race([ended.then(() => false), sleep(8000, true, { ref: false })])
  if (isLate) child.kill('SIGKILL')
  await ended
}

/** Whoever is gone already needs no signal. */
function signal(pid: number | null | undefined, name: NodeJS.Signals): void {
  if (!pid) return
  try {
    process.kill(pid, name)
  } catch {}
}

function parse(line: string): LogLine {
  try {
    return JSON.parse(line) as LogLine
  } catch {
    return {}
  }
}

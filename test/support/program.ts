/** Runs one of our programs as a user would: a real process, killed with real signals. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'

import { eventually } from './eventually.ts'

export const ROOT = join(import.meta.dirname, '..', '..')

export interface Program extends AsyncDisposable {
  process: ChildProcess
  /** Everything printed so far, standard output and error together. */
  output(): string
  /** The JSON log lines so far. */
  lines(): Record<string, unknown>[]
  /** Waits for a log line with this message. */
  said(message: string): Promise<Record<string, unknown>>
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
}

export function runProgram(script: string, env: Record<string, string>, args: string[] = [], cwd = ROOT): Program {
  const child = spawn(process.execPath, ['--no-env-file', join(ROOT, 'scripts', script), ...args], {
    cwd,
    env: { PATH: process.env.PATH ?? '', HTTP_PORT: '0', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let output = ''
  child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((done) => {
    child.once('close', (code, signal) => done({ code, signal }))
  })
  const lines = (): Record<string, unknown>[] =>
    output
      .split('\n')
      .filter((line) => line.startsWith('{') && line.endsWith('}'))
      .map((line) => JSON.parse(line) as Record<string, unknown>)
  return {
    process: child,
    output: () => output,
    lines,
    said: (message) =>
      eventually(() => lines().find((line) => line.msg === message), {
        what: `"${message}" in the log of ${script}:\n${output}`,
      }),
    ended,
    async [Symbol.asyncDispose]() {
      if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
      await ended
    },
  }
}

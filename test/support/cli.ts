/** Runs `leasehold` as a person or a script would, and keeps what it says on each stream apart. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'

import type { TeamDatabase } from './profiles.ts'
import { ROOT } from './program.ts'
import { testFolder } from './test-folder.ts'

export interface Answer {
  code: number | null
  stdout: string
  stderr: string
  /** Standard output line by line, and each line's cells. */
  rows: string[][]
  json: () => unknown
  tookMs: number
}

export type Cli = (...args: string[]) => Promise<Answer>

export async function runCli(args: readonly string[], env: Record<string, string>, cwd = ROOT): Promise<Answer> {
  const startedAt = performance.now()
  const child = spawnCli(args, env, cwd)
  let [stdout, stderr] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  const code = await new Promise<number | null>((done) => void child.once('close', done))
  return {
    code,
    stdout,
    stderr,
    rows: stdout
      .split('\n')
      .slice(0, -1)
      .map((line) => line.split('\t')),
    json: () => JSON.parse(stdout) as unknown,
    tookMs: performance.now() - startedAt,
  }
}

export function spawnCli(
  args: readonly string[],
  env: Record<string, string>,
  cwd = ROOT,
): ReturnType<typeof spawn> & { stdout: NodeJS.ReadableStream; stderr: NodeJS.ReadableStream } {
  const child = spawn(process.execPath, ['--no-env-file', join(ROOT, 'scripts', 'cli.ts'), ...args], {
    cwd,
    env: { PATH: process.env.PATH ?? '', USER: 'ada', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  return child
}

/** `leasehold` on a team's table, described in the file the team would have. */
export function cliFor(
  database: Pick<TeamDatabase, 'url'>,
  entries: object[],
): { cli: Cli; env: Record<string, string> } & Disposable {
  const folder = testFolder()
  const env = { DATABASE_URL: database.url, LEASEHOLD_TABLES: folder.write('tables.json', JSON.stringify(entries)) }
  return {
    env,
    cli: (...args) => runCli(args, env),
    [Symbol.dispose]: () => folder[Symbol.dispose](),
  }
}

/** The command that an answer says should be run, as its words: after `leasehold`, with shell quotes taken off. */
export function commandIn(text: string, verb: string): string[] {
  const line = text.split('\n').find((each) => each.includes(`leasehold ${verb} `)) ?? ''
  const command = line.slice(line.indexOf('leasehold ') + 'leasehold '.length)
  return [...command.matchAll(/'((?:[^']|'\\'')*)'|(\S+)/g)].map(
    ([, quoted, plain]) => quoted?.replaceAll(`'\\''`, `'`) ?? plain ?? '',
  )
}

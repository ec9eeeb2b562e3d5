/** `leasehold` as a process: wrong words, exit codes, streams, terminals, signals, and databases that are not there. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'

import postgres from 'postgres'

import { COMMANDS } from '../../src/cli/commands.ts'
import { type Answer, runCli, spawnCli } from '../support/cli.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { openFolder } from '../support/open-folder.ts'
import { isAlive } from '../support/processes.ts'
import { ROOT, runProgram } from '../support/program.ts'
import { EXPIRED, HELD, insertJob } from '../support/rows.ts'

/** Said on a machine that is busy with other things, and beside the point then. */
const WAITING = /^.*waiting for the database.*\n/gm

let t: TestDatabase
let env: Record<string, string>
let failed: string

beforeAll(async () => {
  t = await freshDatabase()
  env = { DATABASE_URL: t.url }
  failed = await insertJob(t.sql, 'jobs', { status: `'failed'`, attempt_count: '3', stage: `'clip'` })
  await insertJob(t.sql, 'jobs', { status: `'failed'`, attempt_count: '3', fail_code: `'DISK'` })
  await insertJob(t.sql, 'jobs', HELD)
})
afterAll(() => t[Symbol.asyncDispose]())

const cli = (...args: string[]): Promise<Answer> => runCli(args, env)
/** Of its usage, without the definition of its arguments: `explain <id>` is `explain`. */
const NAMES = COMMANDS.map(({ usage }) => usage.split(' ')[0] ?? '')

describe('wrong words', () => {
  test.each([
    [['stauts'], 'there is no command stauts, did you mean status?'],
    [['xyzzy'], 'there is no command xyzzy; there are status, leases,'],
    [['list', '--satus', 'failed'], 'there is no option --satus, did you mean --status?'],
    [['migrate', '--prnt'], 'there is no option --prnt, did you mean --print?'],
    [
      ['list', '--status', 'faild'],
      '--status: expected one of queued, processing, done, failed, got faild, did you mean failed?',
    ],
    [['list', '--limit', 'many'], '--limit: expected a whole number from 1 to 500, got many'],
    [['list', '--limit'], '--limit: expected a value behind it'],
    [['list', '--table', 'job'], 'there is no table job here, did you mean jobs?'],
    [['list', '--after', 'x'], '--after: expected --table with it'],
    [['explain'], 'expected id, got none'],
    [['explain', 'a', 'b'], 'expected one id, got a and b'],
    [['status', 'x'], 'expected only options, got x'],
    [['reap'], 'expected --once'],
    [['drain'], 'expected --plan'],
    [['retry', '--reason', 'because'], 'expected the ids of jobs, or --table, --code, --stage or --holder for all'],
    [['retry', 'a', '--code', 'b', '--reason', 'because'], 'not both'],
    [['retry', '--code', 'b', '--reason', 'because'], 'expected --table with it, one of jobs, asr_jobs'],
    [
      ['cancel', 'a', '--seen', 'running', '--reason', 'because'],
      '--seen: expected a status and an attempt like processing:2',
    ],
    [['cancel', 'a', 'b', '--seen', 'queued:1', '--reason', 'because'], '--seen: expected one id with it'],
    [['end-lease', 'a'], 'say why with --reason: expected some words, got none'],
    [['attach', 'jobs', 'tasks'], 'expected one table, got jobs and tasks'],
    [['attach', '--apply'], '--apply: expected a table to apply it to'],
    [['attach', '"jobs"'], 'without quotes'],
  ])('%j ends with 2, and says what was expected', async (args, said) => {
    const answer = await cli(...args)
    expect([answer.code, answer.stdout]).toEqual([2, ''])
    expect(answer.stderr).toContain(said)
    expect(answer.stderr).toContain('See leasehold ')
    expect(answer.stderr).toContain('--help')
  })

  test('no word at all shows the help, and ends with 2', async () => {
    const answer = await cli()
    expect([answer.code, answer.stdout]).toEqual([2, ''])
    for (const name of NAMES) expect(answer.stderr).toContain(`  ${name} `)
  })

  test('settings that cannot be used end every command with 2, before a database is asked', async () => {
    const answer = await runCli(['status'], { DATABASE_URL: 'postgres://u:p@127.0.0.1:1/d', HEARTBEAT_SEC: '10s' })
    expect([answer.code, answer.stdout]).toEqual([2, ''])
    expect(answer.stderr).toContain('HEARTBEAT_SEC: expected')
  })
})

describe.each(NAMES)('%s', (name) => {
  test('has its help on standard output', async () => {
    const answer = await cli(name, '--help')
    expect([answer.code, answer.stderr]).toEqual([0, ''])
    expect(answer.stdout).toContain(`Usage: leasehold ${name}`)
    expect(answer.stdout).toContain('--json')
  })
})

describe('--json', () => {
  const PAGE = readFileSync(join(ROOT, 'docs', 'cli.md'), 'utf8')
  /** The rows of the table of shapes: which commands, and every name that stands behind them. */
  const SHAPES = [...(PAGE.split('\n## JSON\n')[1] ?? '').matchAll(/^\| (`.*?) +\| (.*) \|$/gm)].map(
    ([, commands = '', shape = '']) => ({
      commands: [...commands.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name),
      keys: [...shape.matchAll(/`(\w+)`/g)].map(([, name = '']) => name),
    }),
  )
  const CALLS: Record<string, string[]> = {
    status: [],
    leases: [],
    list: ['--status', 'failed'],
    failures: [],
    workers: [],
    explain: ['FAILED'],
    events: ['FAILED'],
    retry: ['nobody', '--reason', 'because'],
    cancel: ['nobody', '--reason', 'because'],
    'end-lease': ['nobody', '--reason', 'because'],
    reap: ['--once', '--dry-run'],
    drain: ['--plan'],
    doctor: [],
    attach: [],
    migrate: ['--print'],
    config: [],
  }

  test('is asked of every command here; prove has a test of its own', () => {
    expect(NAMES.filter((name) => name !== 'prove').toSorted()).toEqual(Object.keys(CALLS).toSorted())
  })

  test.each(Object.entries(CALLS))(
    '%s answers with version 1, in the shape that docs/cli.md says',
    async (name, args) => {
      await cli('retry', failed, '--reason', 'so that it has an event')
      const answer = await cli(name, ...args.map((each) => (each === 'FAILED' ? failed : each)), '--json')
      const [line = ''] = answer.stdout.split('\n')
      const told = JSON.parse(name === 'events' ? line : answer.stdout) as Record<string, unknown>
      expect(told).toMatchObject({ version: 1 })
      const documented = SHAPES.filter(({ commands }) => commands.includes(name)).flatMap(({ keys }) => keys)
      expect(Object.keys(told).filter((key) => key !== 'version' && !documented.includes(key))).toEqual([])
    },
  )

  test('a job has the fields that docs/cli.md says, and no other', async () => {
    const { leases } = (await cli('leases', '--json')).json() as { leases: object[] }
    const table = PAGE.split('\nA job, wherever one stands:\n')[1] ?? ''
    const documented = [...table.matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell = '']) => cell.match(/\w+(?=`)/g) ?? [])
    expect(documented.toSorted()).toEqual(Object.keys(leases[0] ?? {}).toSorted())
  })
})

/** Takes every connection and never says a word. */
async function silentServer(): Promise<{ url: string; connected: Promise<void> } & AsyncDisposable> {
  const sockets = new Set<{ destroy(): void }>()
  const connected = Promise.withResolvers<void>()
  const server = createServer((socket) => {
    sockets.add(socket)
    connected.resolve()
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const { port } = server.address() as { port: number }
  return {
    url: `postgres://u:p@127.0.0.1:${port}/d`,
    connected: connected.promise,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((done) => server.close(done))
    },
  }
}

describe('a database that is not there', () => {
  const away = (url: string, args = ['status']): Promise<Answer> => runCli(args, { DATABASE_URL: url })

  test.each(NAMES.filter((name) => !['config', 'prove'].includes(name)))('ends %s with 4', async (name) => {
    const args: Record<string, string[]> = { reap: ['--once'], drain: ['--plan'], explain: ['x'], events: ['x'] }
    const acting = ['retry', 'cancel', 'end-lease'].includes(name) ? ['x', '--reason', 'because'] : []
    const answer = await away('postgres://u:secret@127.0.0.1:1/d', [name, ...(args[name] ?? acting), '--json'])
    expect([answer.code, answer.stdout]).toEqual([4, ''])
    expect(answer.stderr).toContain('127.0.0.1:1/d cannot be reached: ECONNREFUSED')
    expect(answer.stderr).toContain('Is the database up, and is DATABASE_URL right?')
    expect(answer.stderr).not.toContain('secret')
  })

  test('a wrong password and an unknown database are no way in either', async () => {
    const stranger = new URL(t.url)
    stranger.password = 'wrong'
    for (const url of [stranger.toString(), `${t.url}_not_there`]) {
      const answer = await away(url)
      expect([answer.code, answer.stdout]).toEqual([4, ''])
      expect(answer.stderr).not.toContain('wrong')
    }
  })

  test('one that takes the connection and says nothing is waited for, and given up after some seconds', async () => {
    await using silent = await silentServer()
    const answer = await away(silent.url)
    expect(answer.code).toBe(4)
    expect(answer.stderr).toContain('waiting for the database')
    console.log(`a silent server was given up after ${Math.round(answer.tookMs)} ms`)
  })

  test('and Ctrl-C ends the waiting', async () => {
    await using silent = await silentServer()
    const child = spawnCli(['status'], { DATABASE_URL: silent.url })
    let stderr = ''
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
    await silent.connected
    child.kill('SIGINT')
    expect(await new Promise((done) => child.once('close', done))).toBe(130)
    expect(stderr).not.toContain('cannot be reached')
  })

  test('a table that somebody locks is an answer too late, said as such', async () => {
    const [locked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const locker = t.sql.begin(async (host) => {
      await host`lock table jobs in access exclusive mode`
      locked.resolve()
      await release.promise
    })
    await locked.promise
    const slow = { ...env, QUERY_TIMEOUT_SEC: '1', REAPER_TABLES: 'jobs' }
    const [list, status] = await Promise.all([runCli(['list'], slow), runCli(['status'], slow)])
    release.resolve()
    await locker
    expect([list.code, list.stderr]).toEqual([4, expect.stringContaining('the database took too long')])
    expect([status.code, status.stdout]).toEqual([1, expect.stringContaining('jobs: DEADLINE')])
  })

  test('one table of several that somebody locks hides none of the others, and is named', async () => {
    await using u = await freshDatabase()
    const over = await insertJob(u.sql, 'jobs', { ...EXPIRED, last_heartbeat_at: 'now()' })
    await insertJob(u.sql, 'jobs', { status: `'failed'`, attempt_count: '3', fail_code: `'DISK'` })
    const [locked, release] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const locker = u.sql.begin(async (host) => {
      await host`lock table asr_jobs in access exclusive mode`
      locked.resolve()
      await release.promise
    })
    await locked.promise
    const slow = { DATABASE_URL: u.url, QUERY_TIMEOUT_SEC: '1' }
    const look = [['leases'], ['list'], ['failures'], ['workers'], ['leases', '--json']]
    const answers = await Promise.all(look.map((args) => runCli(args, slow)))
    const reaped = await runCli(['reap', '--once'], slow)
    release.resolve()
    await locker
    for (const [at, { code, stdout, stderr }] of answers.entries()) {
      expect([look[at], code]).toEqual([look[at], 1])
      expect(stdout).toContain(['leases', 'list'].includes(look[at]?.[0] ?? '') ? over : 'jobs\t')
      expect(stderr).toContain('asr_jobs: the database took too long')
    }
    expect(answers[4]?.json()).toMatchObject({ refused: [{ table: 'asr_jobs' }] })
    // What was moved in one table is told, whatever becomes of the other.
    expect([reaped.code, reaped.rows.map(([id]) => id)]).toEqual([1, [over]])
    expect(reaped.stderr).toContain('asr_jobs: the database took too long')
  })
})

describe('streams', () => {
  test('a reader that has seen enough ends nothing with an error', () => {
    const program = `${process.execPath} --no-env-file ${join(ROOT, 'scripts', 'cli.ts')}`
    for (const command of ['list | head -1', 'list --json | head -1', '--help | true', 'config | true']) {
      const { stdout, stderr } = spawnSync('bash', ['-c', `${program} ${command}; echo "\${PIPESTATUS[0]}"`], {
        env: { PATH: process.env.PATH ?? '', ...env },
        encoding: 'utf8',
      })
      expect([command, stderr.replace(WAITING, ''), stdout.split('\n').at(-2)]).toEqual([command, '', '0'])
    }
  })

  /** As a team might: from a moment of today on, one in each millisecond. */
  const putEvents = (id: string, from: number, count: number, length: number): Promise<unknown> =>
    t.sql`
      insert into job_events (job_id, data)
      select ${id}, jsonb_build_object('type', 'step', 'at', to_char(now() + place * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        'details', jsonb_build_object('place', place, 'text', repeat('x', ${length}::int)))
      from generate_series(${from}::int, ${from + count - 1}::int) as place`

  test('events are all shown, and where that is too many it is said', async () => {
    const [some, many] = [await insertJob(t.sql, 'jobs'), await insertJob(t.sql, 'jobs')]
    await putEvents(some, 1, 700, 1)
    await putEvents(many, 1, 10_500, 1)
    const [all, latest] = [await cli('events', some), await cli('events', many)]
    expect([all.code, all.rows.length, all.stderr.replace(WAITING, '')]).toEqual([0, 700, ''])
    expect([latest.code, latest.rows.length]).toEqual([0, 10_000])
    expect(latest.stderr).toContain('These are the latest 10000 events')
    expect((await cli('explain', some)).stdout).toContain(`leasehold events ${some} shows those before too`)
  })

  test('--follow shows every event once, also when so much is told that what is older is cut', async () => {
    const id = await insertJob(t.sql, 'jobs')
    await putEvents(id, 1, 60, 19_000)
    const child = spawnCli(['events', id, '--follow', '--json'], env)
    let stdout = ''
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
    const ended = new Promise((done) => child.once('close', done))
    const lines = (): string[] => stdout.split('\n').slice(0, -1)
    await eventually(() => lines().length >= 60, { what: 'what was told so far' })
    await putEvents(id, 61, 5, 19_000)
    await eventually(() => stdout.includes('"place":65'), { what: 'what is told now' })
    await t.sql`update jobs set status = 'done' where id::text = ${id}`
    expect(await ended).toBe(0)
    expect(lines()).toHaveLength(65)
  })

  test('--follow ends when its reader has gone', async () => {
    const id = await insertJob(t.sql, 'jobs')
    const child = spawnCli(['events', id, '--follow'], env)
    const ended = new Promise((done) => child.once('close', done))
    ;(child.stdout as unknown as { destroy(): void }).destroy()
    await cli('retry', id, '--reason', 'so that there is something to tell')
    expect(await ended).toBe(0)
  })

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s ends it with %i', async (signal, code) => {
    const id = await insertJob(t.sql, 'jobs')
    await cli('retry', id, '--reason', 'so that there is something to tell')
    const child = spawnCli(['events', id, '--follow'], env)
    let stdout = ''
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
    const ended = new Promise((done) => child.once('close', done))
    await eventually(() => stdout !== '', { what: 'the first event' })
    child.kill(signal)
    expect(await ended).toBe(code)
  })
})

describe.skipIf(!existsSync('/usr/bin/script'))('a terminal', () => {
  /** A real pseudo-terminal, 100 cells wide. */
  function onTerminal(command: string, more: Record<string, string> = {}, cells = 100): string {
    const program = `${process.execPath} --no-env-file ${join(ROOT, 'scripts', 'cli.ts')}`
    const { stdout } = spawnSync(
      '/usr/bin/script',
      ['-qec', `stty cols ${cells}; ${program} ${command}`, '/dev/null'],
      {
        env: { PATH: process.env.PATH ?? '', TERM: 'xterm', ...env, ...more },
        stdio: ['ignore', 'pipe', 'pipe'],
        encoding: 'utf8',
      },
    )
    return stdout.replaceAll('\r\n', '\n')
  }
  const ESCAPE = '\u001B['

  test.each(['status', 'leases', 'list', 'failures', 'workers', 'config --changed', 'drain --plan'])(
    '%s has a table with a header and colour there, and neither elsewhere',
    async (command) => {
      // As its worker would, however long the tests before this one took.
      await t.sql`update jobs set lease_expires_at = now() + interval '1 minute', last_heartbeat_at = now() where status = 'processing'`
      const shown = onTerminal(command)
      expect(shown).toContain(ESCAPE)
      expect(shown).not.toContain('\t')
      const plain = onTerminal(command, { NO_COLOR: '1' })
      expect(plain).not.toContain(ESCAPE)
      expect(onTerminal(`${command} --no-color`)).not.toContain(ESCAPE)
      const piped = await cli(...command.split(' '))
      expect(piped.stdout).not.toContain(ESCAPE)
      expect(piped.stdout).toContain('\t')
      expect(piped.stderr).not.toContain(ESCAPE)
    },
  )

  test.each([80, 100, 140])('of %i cells has tables that fit it, and ids that are whole', (cells) => {
    for (const command of ['leases', 'list', 'workers']) {
      const lines = onTerminal(`${command} --no-color`, {}, cells).split('\n')
      expect(Math.max(...lines.map((line) => Bun.stringWidth(line)))).toBeLessThanOrEqual(cells)
      if (command !== 'workers') expect(lines.join('\n')).toMatch(/^[0-9a-f-]{36} /m)
    }
  })

  test('the time a lease has left is a bar', () => {
    expect(onTerminal('leases --no-color')).toMatch(/[█░]{10}/)
  })

  test('--json is the same there as elsewhere', () => {
    expect(JSON.parse(onTerminal('leases --json'))).toMatchObject({ version: 1 })
  })
})

describe('config', () => {
  test('shows every setting, where it came from and what it overrules, and no secret', async () => {
    const { stdout } = await runCli(['config'], {
      ...env,
      JOB_MAX_ATTEMPTS: '5',
      MAX_ATTEMPTS: '7',
      OPERATOR_TOKEN: 'a-secret-of-32-characters-or-more',
    })
    const rows = stdout.split('\n').map((line) => line.split('\t'))
    expect(rows).toContainEqual(['JOB_MAX_ATTEMPTS', '5', 'environment', expect.any(String)])
    expect(rows.find(([name]) => name === 'HEARTBEAT_INTERVAL_SEC')?.[2]).toBe('default')
    expect(stdout).not.toContain('a-secret')
    expect(stdout).not.toContain(new URL(t.url).password)
  })
})

describe('without DATABASE_URL', () => {
  test('a database that nobody runs is started for the command and is gone after it, however that ends', async () => {
    const dataDir = openFolder('cli')
    const own = { DATA_DIR: dataDir }
    const answer = await runCli(['status'], own)
    expect([answer.code, answer.stdout.split('\n')[0]]).toEqual([0, 'Nothing is stuck: 0 running, 0 due.'])
    expect(answer.stderr).toContain('DATABASE_URL is not set: using the embedded database in')
    expect(answer.stderr).toContain('started for this command only')
    const running = join(dataDir, 'postgres', 'running.json')
    expect(existsSync(running)).toBe(false)

    const lock = join(dataDir, 'postgres', 'cluster', 'postmaster.pid')
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      const child = spawnCli(['status'], own)
      const ended = new Promise((done) => child.once('close', done))
      const pid = await eventually(() => Number(readFileSync(lock, 'utf8').split('\n', 1)[0]), { everyMs: 2 })
      child.kill(signal)
      await ended
      await eventually(() => !isAlive(pid), { what: `the database to be gone after ${signal}` })
    }
  })

  test('the one that the reaper runs is used, and left running', async () => {
    const dataDir = openFolder('cli')
    await using reaper = runProgram('reaper.ts', { DATA_DIR: dataDir })
    await reaper.said('reaper started')
    const { url } = JSON.parse(readFileSync(join(dataDir, 'postgres', 'running.json'), 'utf8')) as { url: string }
    const sql = postgres(url, { max: 1, onnotice: () => undefined })
    const id = await insertJob(sql, 'jobs')
    const answer = await runCli(['explain', id], { DATA_DIR: dataDir })
    expect([answer.code, answer.stdout]).toEqual([0, expect.stringContaining('queued, due')])
    expect(answer.stderr).not.toContain('started for this command')
    expect(await sql`select 1 as alive`).toMatchObject([{ alive: 1 }])
    await sql.end()
  })
})

describe('the program that is named', () => {
  test.each([
    [{ npm_lifecycle_event: 'cli' }, 'bun run cli retry'],
    [{ npm_lifecycle_event: 'cli', npm_config_user_agent: 'npm/10.9.0 node/v22' }, 'npm run cli -- retry'],
    [{ npm_lifecycle_event: 'build' }, 'leasehold retry'],
  ])('with %j is %s', async (from, said) => {
    const id = await insertJob(t.sql, 'jobs', { status: `'failed'`, attempt_count: '3' })
    expect((await runCli(['explain', id], { ...env, ...from })).stdout).toContain(`${said} ${id} --reason`)
  })
})

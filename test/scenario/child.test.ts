/** Programs that a handler runs: real processes that succeed, fail, are killed, ignore us or leave others behind. */
import { afterEach, describe, expect, test } from 'bun:test'
import { spawn } from 'node:child_process'
import { mkdtempSync, realpathSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

import { ChildError } from '../../src/worker/child-error.ts'
import { createRunner, type Runner } from '../../src/worker/child.ts'
import { eventually } from '../support/eventually.ts'
import { isAlive, type LogLine, recordingLog } from '../support/processes.ts'

interface Setup extends Runner {
  abort: AbortController
  lines: LogLine[]
}

const started: Setup[] = []

function setUp(graceMs = 300): Setup {
  const abort = new AbortController()
  const { log, lines } = recordingLog()
  const setup = { ...createRunner({ signal: abort.signal, log, graceMs }), abort, lines }
  started.push(setup)
  return setup
}

afterEach(async () => {
  for (const { killAll } of started.splice(0)) await killAll()
})

/** What a run throws. */
async function failureOf(running: Promise<unknown>): Promise<unknown> {
  try {
    return { output: await running }
  } catch (error) {
    return error
  }
}

/** Runs a shell script that prints process numbers, and waits for so many of them. */
async function startShell({ run }: Setup, script: string, count: number) {
  const pids: number[] = []
  const onLine = (line: string): void => {
    if (/^\d+$/.test(line)) pids.push(Number(line))
  }
  const ended = failureOf(run(['sh', '-c', script], { onLine }))
  await eventually(() => pids.length === count, { what: `${count} process numbers` })
  expect(pids.map(isAlive)).toEqual(pids.map(() => true))
  return { pids, ended }
}

async function allGone(pids: number[]): Promise<void> {
  await eventually(() => !pids.some(isAlive), { what: `the end of ${pids.join(', ')}` })
}

describe('a program that ends', () => {
  test('with exit code 0 is a success; its input, folder, environment and outputs are its own', async () => {
    const cwd = realpathSync(mkdtempSync(join(tmpdir(), 'leasehold-child-')))
    const script = 'cat; pwd; echo $COLOUR >&2'
    const output = await setUp().run(['sh', '-c', script], { cwd, env: { COLOUR: 'red' }, stdin: 'hello\n' })
    expect(output).toEqual({ stdout: `hello\n${cwd}\n`, stderr: 'red\n' })
  })

  test('with another exit code has failed, for now', async () => {
    const error = await failureOf(setUp().run(['sh', '-c', 'echo no luck >&2; exit 3']))
    expect(error).toBeInstanceOf(ChildError)
    expect(error).toMatchObject({
      code: 'CHILD_FAILED',
      permanent: false,
      exitCode: 3,
      signal: null,
      stderrTail: 'no luck\n',
      message: 'sh ended with exit code 3',
    })
  })

  test('W6: by a signal from outside was killed, and the signal is named', async () => {
    const { pids, ended } = await startShell(setUp(), 'echo $$; exec sleep 300', 1)
    process.kill(pids[0] ?? 0, 'SIGSEGV')
    expect(await ended).toMatchObject({
      code: 'CHILD_KILLED',
      permanent: false,
      exitCode: null,
      signal: 'SIGSEGV',
      message: 'sh was killed by SIGSEGV',
    })
  })

  test('and fails takes what it started along, and is told at once', async () => {
    const { pids, ended } = await startShell(setUp(), 'sleep 300 & echo $!; sleep 0.3; exit 3', 1)
    expect(await ended).toMatchObject({ code: 'CHILD_FAILED', exitCode: 3 })
    await allGone(pids)
  })

  test('before it has read its input is no error', async () => {
    expect(await setUp().run(['true'], { stdin: 'x'.repeat(10_000_000) })).toEqual({ stdout: '', stderr: '' })
  })
})

describe('a program that cannot start', () => {
  test.each([
    ['no-such-program-here', ['no-such-program-here', 'x']],
    ['/no/such/program', ['/no/such/program']],
    ['', ['']],
    ['', []],
  ])('%p is missing, for good', async (program, command) => {
    expect(await failureOf(setUp().run(command))).toMatchObject({
      code: 'CHILD_MISSING',
      permanent: true,
      message: `there is no program "${program}" on this machine`,
    })
  })

  test('because its folder is gone may start another time', async () => {
    expect(await failureOf(setUp().run(['true'], { cwd: '/no/such/folder' }))).toMatchObject({
      code: 'CHILD_FAILED',
      permanent: false,
      message: 'true could not be started: there is no folder /no/such/folder',
    })
  })

  test('because a program says 127 itself is not missing', async () => {
    expect(await failureOf(setUp().run(['sh', '-c', 'no-such-program-here']))).toMatchObject({
      code: 'CHILD_FAILED',
      permanent: false,
      exitCode: 127,
    })
  })

  test('after the abort is not even tried', async () => {
    const setup = setUp()
    const reason = new Error('lease lost')
    setup.abort.abort(reason)
    expect(await failureOf(setup.run(['true']))).toBe(reason)
    expect(setup.lines).toEqual([])
  })
})

describe('an abort', () => {
  test('ends a program that listens, with the reason as the answer', async () => {
    const setup = setUp(60_000)
    const { pids, ended } = await startShell(setup, 'echo $$; sleep 300', 1)
    const reason = new Error('lease lost')
    setup.abort.abort(reason)
    expect(await ended).toBe(reason)
    await allGone(pids)
  })

  test('X4: kills a program that ignores SIGTERM, and its grandchildren', async () => {
    const setup = setUp()
    const script = `trap '' TERM; echo $$; sh -c 'echo $$; sleep 300 & echo $!; wait' & wait`
    const { pids, ended } = await startShell(setup, script, 3)
    const reason = new Error('cancelled')
    setup.abort.abort(reason)
    expect(await ended).toBe(reason)
    expect(pids.map(isAlive)).toEqual([false, false, false])
    expect(setup.lines.map(({ msg }) => msg)).toContain('child did not stop; killing it')
  })

  test('X23: kills what a program left in the background, with its output still open', async () => {
    const setup = setUp()
    const { pids, ended } = await startShell(setup, 'sleep 300 & echo $!', 1)
    const reason = new Error('cancelled')
    setup.abort.abort(reason)
    expect(await ended).toBe(reason)
    await allGone(pids)
  })

  test('X23: kills what a program left in the background after it was a success', async () => {
    const setup = setUp()
    const { stdout } = await setup.run(['sh', '-c', `trap '' TERM; sleep 300 >/dev/null 2>&1 & echo $!`])
    const pid = Number(stdout)
    expect(isAlive(pid)).toBe(true)
    setup.abort.abort(new Error('cancelled'))
    await allGone([pid])
  })
})

describe('the end of the job', () => {
  test('killAll ends every program, also one that then says 0', async () => {
    const setup = setUp()
    const first = await startShell(setup, 'echo $$; exec sleep 300', 1)
    const second = await startShell(setup, `trap 'exit 0' TERM; echo $$; while :; do sleep 0.1; done`, 1)
    await setup.killAll()
    expect([...first.pids, ...second.pids].map(isAlive)).toEqual([false, false])
    expect(await first.ended).toMatchObject({ code: 'CHILD_KILLED', message: 'sh was ended with its job' })
    expect(await second.ended).toMatchObject({ code: 'CHILD_KILLED', exitCode: 0, permanent: false })
  })

  // Elsewhere than on Linux a child may outlive a worker that was killed; its scratch folder is still its own.
  test.if(process.platform === 'linux')('W7: kill -9 of the worker takes its child along', async () => {
    // Away from our bunfig.toml and what it hands down, whose noOrphans would do the same.
    const owner = spawn(process.execPath, [fileURLToPath(import.meta.resolve('../support/child-owner.ts'))], {
      cwd: tmpdir(),
      env: { PATH: process.env.PATH ?? '' },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let printed = ''
    owner.stdout.on('data', (chunk: Buffer) => (printed += chunk.toString()))
    const pid = await eventually(() => /^(\d+)\n/.exec(printed)?.[1], { what: 'the process number of the child' })
    await eventually(() => isAlive(Number(pid)))
    owner.kill('SIGKILL')
    await allGone([Number(pid)])
  })
})

describe('output', () => {
  test('without end does not fill the memory; the last 64 kB are kept', async () => {
    const setup = setUp()
    const before = process.memoryUsage.rss()
    const lengths: number[] = []
    const script = 'head -c 1500000000 /dev/zero; printf "the end"'
    const { stdout } = await setup.run(['sh', '-c', script], { onLine: (line) => void lengths.push(line.length) })
    expect(stdout).toHaveLength(65_536)
    expect(stdout).toEndWith('\0the end')
    expect(lengths).toEqual([65_536])
    // Far less than was printed; how soon garbage goes is the engine's business.
    expect(process.memoryUsage.rss() - before).toBeLessThan(700_000_000)
  })

  test('cut inside a character starts with the next one', async () => {
    const { stdout } = await setUp().run(['sh', '-c', `yes 'ü' | tr -d '\\n' | head -c 200001`])
    expect(stdout).not.toStartWith('\uFFFD')
    expect(stdout).toStartWith('ü')
  })

  test('comes line by line from both streams, also the last line without an end', async () => {
    const lines: string[] = []
    const script = `printf 'one\\r\\ntwo\\rth'; sleep 0.1; printf 'ree\\n\\nlast'; echo oops >&2`
    await setUp().run(['sh', '-c', script], { onLine: (line) => void lines.push(line) })
    expect(lines.toSorted()).toEqual(['last', 'one', 'oops', 'three', 'two'])
  })

  test.each([
    [
      'throws',
      () => {
        throw new Error('no such column')
      },
    ],
    ['rejects', () => Promise.reject(new Error('no such column'))],
  ])('whose listener %s ends the program with that error', async (_, onLine) => {
    const setup = setUp()
    const error = await failureOf(setup.run(['sh', '-c', 'echo one; echo two; exec sleep 300'], { onLine }))
    expect(error).toEqual(new Error('no such column'))
    await allGone([setup.lines[0]?.pid ?? 0])
  })
})

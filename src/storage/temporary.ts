/** Names for half-written files that tell their publisher, so that the next one can clean up after a dead one. */
import { createHash, randomBytes } from 'node:crypto'
import { lstat, readdir, unlink } from 'node:fs/promises'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'

/** Hashed, because a host name may be long and hold anything. */
const HOST = createHash('sha256').update(hostname()).digest('hex').slice(0, 6)
const ABANDONED_AFTER_MS = 3_600_000

export function newTemporary(target: string): string {
  const name = `.${basename(target)}.${HOST}-${process.pid}-${randomBytes(3).toString('hex')}.tmp`
  return join(dirname(target), name)
}

/** Removing too much costs a publisher a retry and never harms an artifact; so a guess at who is dead will do. */
export async function removeAbandoned(target: string): Promise<void> {
  const folder = dirname(target)
  for (const name of await readdir(folder)) {
    const writer = writerOf(name, basename(target))
    if (!writer) continue
    const path = join(folder, name)
    const touchedMs = await lstat(path).then(
      (found) => found.mtimeMs,
      () => null,
    )
    if (touchedMs !== null && isAbandoned(writer, touchedMs)) await unlink(path).catch(() => undefined)
  }
}

interface Writer {
  host: string
  pid: number
}

function writerOf(name: string, target: string): Writer | null {
  if (!name.startsWith(`.${target}.`)) return null
  const [, host, pid] = /^([0-9a-f]{6})-(\d+)-[0-9a-f]{6}\.tmp$/.exec(name.slice(target.length + 2)) ?? []
  return host === undefined ? null : { host, pid: Number(pid) }
}

function isAbandoned({ host, pid }: Writer, touchedMs: number): boolean {
  if (Date.now() - touchedMs > ABANDONED_AFTER_MS) return true
  if (host !== HOST) return false
  // In a container every incarnation has the same number: a file older than this process is a predecessor's.
  return pid === process.pid ? touchedMs < Date.now() - process.uptime() * 1000 : !isRunning(pid)
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

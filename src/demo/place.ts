/** The demo's own place on the machine: a folder and a PostgreSQL in it, gone at the end, however the end comes. */
import { spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { type EmbeddedServer, startEmbedded } from '../db/embedded.ts'

export interface Place {
  folder: string
  /** Where clips are published, and where they are made. */
  storage: string
  scratch: string
  startDatabase(): Promise<string>
  /** Stops it under everybody and starts it again; answers how many milliseconds it was away. */
  restartDatabase(): Promise<number>
  close(): Promise<void>
  /** The same at once, for the end of a process that waits for nobody. */
  dropNow(): void
}

/** With mapped files, a server that is killed leaves no shared memory behind. */
const SETTINGS = { dynamic_shared_memory_type: 'mmap' }
/** Long enough for everybody to notice. */
const AWAY_MS = 700

export function openPlace(): Place {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-demo-'))
  // For root, the server runs under another account, which must be able to enter.
  chmodSync(folder, 0o755)
  const [dataDir, storage, scratch] = ['data', 'storage', 'scratch'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]
  for (const path of [dataDir, storage, scratch]) mkdirSync(path)
  leaveKeeper(folder)
  let server: EmbeddedServer | null = null

  function remove(): void {
    rmSync(homeOf(dataDir), { recursive: true, force: true, maxRetries: 5 })
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 })
  }

  return {
    folder,
    storage,
    scratch,
    async startDatabase() {
      server = await startEmbedded({ dataDir, settings: SETTINGS })
      return server.url
    },
    async restartDatabase() {
      if (!server) throw new Error('there is no database to restart')
      const startedAt = performance.now()
      const port = Number(new URL(server.url).port)
      await server.stop()
      await sleep(AWAY_MS)
      server = await startEmbedded({ dataDir, port, settings: SETTINGS })
      return performance.now() - startedAt
    },
    async close() {
      await server?.stop()
      server = null
      remove()
    },
    dropNow() {
      if (server) endAtOnce(server.pid, dataDir)
      remove()
    },
  }
}

/** Without a word to its clients, but with time to give its shared memory back: then it removes its lock file. */
function endAtOnce(pid: number, dataDir: string): void {
  try {
    process.kill(pid, 'SIGQUIT')
  } catch {
    return
  }
  const lock = join(homeOf(dataDir), 'cluster', 'postmaster.pid')
  const turn = new Int32Array(new SharedArrayBuffer(4))
  for (let tries = 0; tries < 75 && existsSync(lock); tries += 1) Atomics.wait(turn, 0, 0, 20)
}

/** Where the server keeps its files; not always inside, see embedded.ts. */
function homeOf(dataDir: string): string {
  try {
    return realpathSync(join(dataDir, 'postgres'))
  } catch {
    return dataDir
  }
}

/**
 * A shell that waits for our end and then tidies up, for the day on which we are killed and cannot: the server, the few
 * bytes of shared memory of one that was killed along with us, the folder. It is nobody's child, so that nothing takes
 * it along.
 */
function leaveKeeper(folder: string): void {
  const script = `(while kill -0 "$1" && [ -d "$0" ]; do sleep 1; done
home=$(cd "$0/data/postgres" && pwd -P)
lock=$home/cluster/postmaster.pid
memory=$(sed -n '7s/.* //p' "$lock")
kill -QUIT "$(head -1 "$lock")"
for pause in 1 1 1 2 5; do
  sleep $pause
  rm -rf "$home" "$0" && break
done
ipcrm -m "$memory") </dev/null >/dev/null 2>&1 &`
  spawn('/bin/sh', ['-c', script, folder, String(process.pid)], { stdio: 'ignore', detached: true })
    .on('error', () => undefined)
    .unref()
}

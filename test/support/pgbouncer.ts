/** A real PgBouncer in transaction mode with two server connections, in front of a test database. */
import { spawn } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { join } from 'node:path'

import { openDatabase } from '../../src/db/client.ts'
import { eventually } from './eventually.ts'

export const PGBOUNCER = Bun.which('pgbouncer', { PATH: `${process.env.PATH}:/usr/sbin` })

export interface Bouncer extends AsyncDisposable {
  url: string
}

export async function startPgBouncer(targetUrl: string): Promise<Bouncer> {
  if (!PGBOUNCER) throw new Error('no pgbouncer on this machine')
  const target = new URL(targetUrl)
  const folder = mkdtempSync(join('/tmp', 'leasehold-bouncer-'))
  const port = await freePort()
  const database = target.pathname.slice(1)
  writeFileSync(
    join(folder, 'pgbouncer.ini'),
    `[databases]
${database} = host=${target.hostname} port=${target.port} user=${target.username} password=${target.password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 100
`,
  )
  chmodSync(folder, 0o755)
  const asRoot = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  const bouncer = spawn(PGBOUNCER, ['-q', ...asRoot, join(folder, 'pgbouncer.ini')], { stdio: 'ignore' })
  const url = new URL(targetUrl)
  url.port = String(port)
  await eventually(async () => {
    const db = openDatabase({ url: url.toString(), poolMax: 1, queryTimeoutSec: 1 })
    try {
      return await db.query((sql) => sql`select 1`)
    } finally {
      await db.close()
    }
  })
  return {
    url: url.toString(),
    async [Symbol.asyncDispose]() {
      const ended = new Promise((done) => bouncer.once('exit', done))
      bouncer.kill('SIGKILL')
      await ended
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function freePort(): Promise<number> {
  return new Promise((done) => {
    const probe = createServer()
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address()
      probe.close(() => done(address && typeof address === 'object' ? address.port : 0))
    })
  })
}

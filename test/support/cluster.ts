/** A cluster of a test's own, that can be stopped, restarted and killed on its port while clients are connected. */
import { rmSync } from 'node:fs'

import postgres, { type Sql } from 'postgres'

import { openDatabase } from '../../src/db/client.ts'
import { type EmbeddedServer, startEmbedded } from '../../src/db/embedded.ts'
import { migrate } from '../../src/db/migrate.ts'
import { openFolder } from './open-folder.ts'
import { WITNESS_SQL } from './witness.ts'

export interface Cluster extends AsyncDisposable {
  url: string
  sql: Sql
  stop(): Promise<void>
  start(): Promise<void>
}

export async function startCluster(settings: Record<string, string> = {}): Promise<Cluster> {
  const dataDir = openFolder('cluster')
  let server: EmbeddedServer = await startEmbedded({ dataDir, settings: { fsync: 'off', ...settings } })
  const { url } = server
  const port = Number(new URL(url).port)
  const db = openDatabase({ url })
  await migrate(db, url, { tables: ['jobs', 'asr_jobs'], maxAttempts: 3 })
  await db.close()
  const sql = postgres(url, { max: 3, onnotice: () => undefined, backoff: () => 0.1 })
  await sql.unsafe(WITNESS_SQL).simple()
  return {
    url,
    sql,
    stop: () => server.stop(),
    async start() {
      server = await startEmbedded({ dataDir, port, settings: { fsync: 'off', ...settings } })
    },
    async [Symbol.asyncDispose]() {
      await sql.end({ timeout: 0 })
      await server.stop()
      rmSync(dataDir, { recursive: true, force: true })
    },
  }
}

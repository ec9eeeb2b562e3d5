/** The tests' own cluster: no fsync, many connections, and a template database that every test file copies. */
import { chmodSync } from 'node:fs'

import postgres from 'postgres'

import { openDatabase } from '../../src/db/client.ts'
import { type EmbeddedServer, startEmbedded } from '../../src/db/embedded.ts'
import { migrate } from '../../src/db/migrate.ts'
import { WITNESS_SQL } from './witness.ts'

export const TEMPLATE = 'leasehold_template'

export async function startTestServer(dataDir: string): Promise<EmbeddedServer> {
  chmodSync(dataDir, 0o755)
  const server = await startEmbedded({
    dataDir,
    settings: {
      fsync: 'off',
      synchronous_commit: 'off',
      full_page_writes: 'off',
      max_connections: '200',
      autovacuum: 'off',
    },
  })
  await makeTemplate(server.url)
  return server
}

async function makeTemplate(url: string): Promise<void> {
  const admin = postgres(url, { max: 1, onnotice: () => undefined })
  await admin.unsafe(`create database ${TEMPLATE}`)
  await admin.end()
  const templateUrl = url.replace(/\/[^/]*$/, `/${TEMPLATE}`)
  const db = openDatabase({ url: templateUrl, poolMax: 1 })
  await migrate(db, templateUrl, { tables: ['jobs', 'asr_jobs'], maxAttempts: 3 })
  await db.close()
  const sql = postgres(templateUrl, { max: 1, onnotice: () => undefined })
  await sql.unsafe(WITNESS_SQL).simple()
  await sql.end()
}

/** A fresh database for a test file, copied from the template, with a client for arranging and looking. */
import { randomBytes } from 'node:crypto'

import postgres, { type Sql } from 'postgres'

import { type Database, type DatabaseOptions, openDatabase } from '../../src/db/client.ts'
import { TEMPLATE } from './server.ts'

export interface TestDatabase extends AsyncDisposable {
  url: string
  /** The product's own client. */
  db: Database
  /** The tests' client, to arrange and to look. */
  sql: Sql
  open(options?: Partial<DatabaseOptions>): Database
}

export async function freshDatabase(): Promise<TestDatabase> {
  const serverUrl = process.env.TEST_SERVER_URL
  if (!serverUrl) throw new Error('no test server: run bun run test')
  const name = `test_${randomBytes(6).toString('hex')}`
  const url = serverUrl.replace(/\/[^/]*$/, `/${name}`)
  const admin = postgres(serverUrl, { max: 1, onnotice: () => undefined })
  await admin.unsafe(`create database ${name} template ${TEMPLATE} strategy wal_log`)
  const sql = postgres(url, { max: 5, onnotice: () => undefined })
  const opened: Database[] = []
  const open = (options: Partial<DatabaseOptions> = {}): Database => {
    const db = openDatabase({ url, ...options })
    opened.push(db)
    return db
  }
  return {
    url,
    db: open(),
    sql,
    open,
    async [Symbol.asyncDispose]() {
      await Promise.all([...opened.map((db) => db.close()), sql.end({ timeout: 1 })])
      await admin.unsafe(`drop database ${name} with (force)`)
      await admin.end()
    },
  }
}

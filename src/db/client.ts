/**
 * A database client that can be trusted when things break. postgres.js 3.4 can leave a query unanswered for ever on a
 * connection that was closed before, so every query has a deadline of ours, and a client that misses it, or that has
 * lost a connection, is replaced by a fresh one. A fresh one costs some ten milliseconds.
 */
import { connect as openSocket } from 'node:net'

import postgres, { type PendingQuery, type RowList, type Row } from 'postgres'

import { DeadlineError, describeError, isConnectionError } from './errors.ts'
import type { Sql } from './sql.ts'

export interface DatabaseOptions {
  url: string
  poolMax?: number
  prepare?: boolean
  queryTimeoutSec?: number
  applicationName?: string
  /** Told when a client missed a deadline or lost a connection and was replaced. */
  onReplaced?: (reason: string) => void
}

export interface Database {
  /** Runs one statement. It is sent by this call alone: no transaction, no session state, so any pooler may sit between. */
  query<T extends readonly Row[]>(
    build: (sql: Sql) => PendingQuery<T>,
    options?: { deadlineSec?: number },
  ): Promise<RowList<T>>
  /** host:port/database, safe to show. */
  readonly target: string
  close(): Promise<void>
}

export function openDatabase(options: DatabaseOptions): Database {
  const defaultDeadlineSec = options.queryTimeoutSec ?? 10
  const target = safeTarget(options.url)
  let client = connect(options, defaultDeadlineSec)
  let isClosed = false

  function replace(stuck: Sql, reason: string): void {
    if (stuck !== client || isClosed) return
    client = connect(options, defaultDeadlineSec)
    // Others may still be waiting on the old pool with time left; those that are stuck too run into their own deadline.
    stuck.end({ timeout: defaultDeadlineSec }).catch(() => undefined)
    options.onReplaced?.(reason)
  }

  return {
    target,
    async query(build, { deadlineSec = defaultDeadlineSec } = {}) {
      const used = client
      const pending = build(used)
      const late = Promise.withResolvers<never>()
      const timer = setTimeout(() => {
        late.reject(new DeadlineError(deadlineSec))
        pending.catch(() => undefined)
        replace(used, `no answer within ${deadlineSec} s`)
        cancelOnServer(pending, options.url)
      }, deadlineSec * 1000)
      try {
        return await Promise.race([pending, late.promise])
      } catch (error) {
        // A connection that was closed once may swallow the next query on it: 20 kills in a row cost 16 deadlines here.
        if (isConnectionError(error)) replace(used, describeError(error))
        throw error
      } finally {
        clearTimeout(timer)
      }
    },
    async close() {
      isClosed = true
      await client.end({ timeout: 2 })
    },
  }
}

function connect(options: DatabaseOptions, deadlineSec: number): Sql {
  return postgres(options.url, {
    max: options.poolMax ?? 4,
    prepare: options.prepare ?? false,
    connect_timeout: Math.max(1, Math.min(5, Math.ceil(deadlineSec))),
    // Back within a second of the database's return; the jitter keeps a fleet from knocking all at once.
    backoff: (retries: number) => (0.5 + Math.random() / 2) * Math.min(0.05 * 2 ** retries, 1),
    connection: { application_name: options.applicationName ?? 'leasehold' },
    onnotice: () => undefined,
    // Its own query for array types fails with nobody to catch it; see list() in sql.ts.
    fetch_types: false,
  })
}

/**
 * Asks the server to stop a statement nobody waits for any more, so that it does not go on holding row locks.
 * Done by hand because the client's own cancel() can end in a rejection that nobody can catch.
 */
function cancelOnServer(pending: unknown, url: string): void {
  const { state, active } = pending as { state?: { pid?: number; secret?: number } | null; active?: boolean }
  if (!active || !state?.pid || state.secret === undefined || state.secret === null) return
  const message = Buffer.alloc(16)
  message.writeInt32BE(16, 0)
  message.writeInt32BE(80877102, 4)
  message.writeUInt32BE(state.pid >>> 0, 8)
  message.writeUInt32BE(state.secret >>> 0, 12)
  const { hostname, port } = new URL(url)
  const socket = openSocket({ host: hostname.replaceAll(/^\[|\]$/g, ''), port: Number(port || 5432), timeout: 2000 })
  socket.on('error', () => socket.destroy())
  socket.on('timeout', () => socket.destroy())
  socket.on('connect', () => socket.end(message))
}

/** Where we connect to, without user, password or parameters. */
export function safeTarget(url: string): string {
  const { host, pathname } = new URL(url)
  return `${host}${pathname}`
}

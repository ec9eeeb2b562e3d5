/** A TCP proxy between product and database that can go silent: connections stay open, nothing passes. */
import { connect, createServer, type Socket } from 'node:net'

export interface Proxy extends AsyncDisposable {
  url: string
  /** Swallow everything in both directions from now on, also on new connections. */
  blackhole(): void
  /** Swallow only what the database answers: statements arrive and happen, nobody hears of it. */
  dropReplies(): void
  heal(): void
}

export async function startProxy(targetUrl: string): Promise<Proxy> {
  const target = new URL(targetUrl)
  const sockets = new Set<Socket>()
  let mode: 'pass' | 'blackhole' | 'dropReplies' = 'pass'
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname)
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => socket.destroy())
      socket.on('close', () => sockets.delete(socket))
    }
    client.on('data', (chunk) => mode !== 'blackhole' && upstream.write(chunk))
    upstream.on('data', (chunk) => mode === 'pass' && client.write(chunk))
    client.on('close', () => upstream.destroy())
    upstream.on('close', () => client.destroy())
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the proxy has no port')
  const url = new URL(targetUrl)
  url.port = String(address.port)
  return {
    url: url.toString(),
    blackhole: () => void (mode = 'blackhole'),
    dropReplies: () => void (mode = 'dropReplies'),
    heal() {
      mode = 'pass'
      // What was swallowed is gone; a connection with a hole in it is of no use.
      for (const socket of sockets) socket.destroy()
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((done) => server.close(done))
    },
  }
}

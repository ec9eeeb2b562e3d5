/** The socket that systemd would give a service, listened to by a program that shares no code with us. */
import { type ChildProcess, spawn } from 'node:child_process'

import { eventually } from './eventually.ts'

export const PYTHON = Bun.which('python3', { PATH: `${process.env.PATH}:/usr/bin` })

const LISTEN = `
import json, socket, sys
address = sys.argv[1]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind('\\0' + address[1:] if address.startswith('@') else address)
print('"listening"', flush=True)
while True:
    print(json.dumps(s.recv(65536).decode()), flush=True)
`

export interface NotifySocket extends AsyncDisposable {
  address: string
  process: ChildProcess
  /** The lines of every datagram so far. */
  datagrams(): string[][]
  /** Waits until some datagram has this line. */
  heard(line: string | RegExp): Promise<unknown>
  /** Milliseconds since the last datagram. */
  silentMs(): number
}

export async function listenAt(address: string): Promise<NotifySocket> {
  if (!PYTHON) throw new Error('no python3 on this machine')
  const listener = spawn(PYTHON, ['-c', LISTEN, address], { stdio: ['ignore', 'pipe', 'inherit'] })
  let output = ''
  let lastAt = performance.now()
  listener.stdout.on('data', (chunk: Buffer) => {
    output += chunk.toString()
    lastAt = performance.now()
  })
  const said = (): string[] =>
    output
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as string)
  await eventually(() => said().includes('listening'), { what: `a listener at ${address}` })
  const datagrams = (): string[][] =>
    said()
      .slice(1)
      .map((datagram) => datagram.split('\n'))
  return {
    address,
    process: listener,
    datagrams,
    silentMs: () => performance.now() - lastAt,
    heard: (line) =>
      eventually(
        () =>
          datagrams().some((lines) => lines.some((each) => (line instanceof RegExp ? line.test(each) : each === line))),
        { what: `${String(line)} at ${address}`, withinMs: 30_000 },
      ),
    async [Symbol.asyncDispose]() {
      const ended = new Promise((done) => listener.once('exit', done))
      listener.kill('SIGKILL')
      await ended
    },
  }
}

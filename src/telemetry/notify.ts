/**
 * Tells systemd how a service is doing: datagrams to the socket that it names in NOTIFY_SOCKET, through libc alone, with no
 * native module. Whatever goes wrong here is told once and never hurts the work.
 */
import { dlopen, ptr } from 'bun:ffi'

/** Sends assignments such as READY=1, all in one datagram. False when it could not be handed over. */
export type Notify = (states: Record<string, string | number>) => boolean

const AF_UNIX = 1
const SOCK_DGRAM_CLOEXEC = 0o2_000_002
/** Never wait for systemd, and never die of it. */
const MSG_DONTWAIT_NOSIGNAL = 0x40 | 0x4000
/** `sun_path` has 108 bytes, one of them for the end. */
const LONGEST_PATH = 107
const LONGEST_VALUE = 500

export function openNotify(address: string, onFault: (fault: string) => void): Notify {
  let send: ((message: Buffer) => boolean) | null = null
  let hasTold = false
  const fail = (fault: string): false => {
    if (!hasTold) onFault(fault)
    hasTold = true
    return false
  }
  return (states) => {
    try {
      send ??= openSocket(address)
      return send(encode(states)) || fail(`nobody takes messages at ${address}`)
    } catch (error) {
      return fail(error instanceof Error ? error.message : String(error))
    }
  }
}

/** Every line is an assignment, so a line break in a text would let it say anything to systemd. */
function encode(states: Record<string, string | number>): Buffer {
  const lines = Object.entries(states).map(
    ([name, value]) =>
      `${name}=${String(value)
        .slice(0, LONGEST_VALUE)
        .replaceAll(/\p{C}+/gu, ' ')}`,
  )
  return Buffer.from(lines.join('\n'))
}

function openSocket(address: string): (message: Buffer) => boolean {
  const target = socketAddress(address)
  const { socket, sendto } = dlopen('libc.so.6', {
    socket: { args: ['int', 'int', 'int'], returns: 'int' },
    sendto: { args: ['int', 'ptr', 'usize', 'int', 'ptr', 'u32'], returns: 'i64' },
  }).symbols
  const handle = socket(AF_UNIX, SOCK_DGRAM_CLOEXEC, 0)
  if (handle < 0) throw new Error('no Unix socket could be opened')
  return (message) =>
    Number(sendto(handle, ptr(message), message.length, MSG_DONTWAIT_NOSIGNAL, ptr(target), target.length)) ===
    message.length
}

/** A path, or with @ a name in the abstract namespace, where the first byte is zero. */
function socketAddress(address: string): Buffer {
  const name = Buffer.from(address)
  if (!/^[/@]./s.test(address) || name.length > LONGEST_PATH) throw new Error(`not the address of a socket: ${address}`)
  if (address.startsWith('@')) name[0] = 0
  const family = Buffer.from(new Uint16Array([AF_UNIX]).buffer)
  return Buffer.concat([family, name])
}

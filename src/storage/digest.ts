/** Reads plain files in pieces: never through a symbolic link, never a pipe that would block, never whole in memory. */
import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'

export interface Digest {
  size: number
  sha256: string
}

const PIECE_BYTES = 256 * 1024

export async function openPlainFile(path: string): Promise<FileHandle> {
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  if ((await handle.stat()).isFile()) return handle
  await handle.close()
  throw Object.assign(new Error(`${path} is not a plain file`), { code: 'ENOTFILE' })
}

/** Reads the file to its end and answers size and hash; `onPiece` sees every piece on the way. */
export async function digest(handle: FileHandle, onPiece?: (piece: Buffer) => Promise<unknown>): Promise<Digest> {
  const hash = createHash('sha256')
  const buffer = Buffer.allocUnsafe(PIECE_BYTES)
  let size = 0
  for (;;) {
    const { bytesRead } = await handle.read(buffer, 0, PIECE_BYTES, size)
    if (bytesRead === 0) return { size, sha256: hash.digest('hex') }
    const piece = buffer.subarray(0, bytesRead)
    hash.update(piece)
    await onPiece?.(piece)
    size += bytesRead
  }
}

export async function digestFile(path: string): Promise<Digest> {
  await using handle = await openPlainFile(path)
  return await digest(handle)
}

export function isSameDigest(a: Digest, b: Digest): boolean {
  return a.size === b.size && a.sha256 === b.sha256
}

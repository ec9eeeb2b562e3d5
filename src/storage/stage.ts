/** Whole, synced files in their target's own folder, so that the move into place is one step and never crosses devices. */
import { type FileHandle, open, unlink } from 'node:fs/promises'

import { digest, isSameDigest, openPlainFile } from './digest.ts'
import { type Publication, StorageError } from './storage.ts'
import { newTemporary, removeAbandoned } from './temporary.ts'

/** Gone when disposed of, unless it was moved before. */
export interface Staged extends AsyncDisposable {
  path: string
}

export async function stageCopy({ file, manifest }: Publication, target: string): Promise<Staged> {
  await using source = await openPlainFile(file)
  return await stage(target, async (copy) => {
    const copied = await digest(source, (piece) => writeAll(copy, piece))
    if (!isSameDigest(copied, manifest) || (await copy.stat()).size !== manifest.size) {
      throw new StorageError('STORAGE', `${file} is not what its manifest says; was it changed meanwhile?`)
    }
  })
}

export function stageText(text: string, target: string): Promise<Staged> {
  return stage(target, (file) => writeAll(file, Buffer.from(text)))
}

async function stage(target: string, write: (file: FileHandle) => Promise<unknown>): Promise<Staged> {
  await removeAbandoned(target)
  const path = newTemporary(target)
  const remove = (): Promise<void> => unlink(path).catch(() => undefined)
  await using file = await open(path, 'wx', 0o644)
  try {
    await write(file)
    await file.sync()
  } catch (error) {
    await remove()
    throw error
  }
  return { path, [Symbol.asyncDispose]: remove }
}

async function writeAll(file: FileHandle, piece: Buffer): Promise<void> {
  for (let at = 0; at < piece.length;) at += (await file.write(piece, at, piece.length - at)).bytesWritten
}

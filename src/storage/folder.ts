/** The folders between a storage's root and its artifacts: real ones, never links that lead elsewhere. */
import { constants } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, stat } from 'node:fs/promises'
import { join } from 'node:path'

import { fsCode, nullIfUntrusted } from './fs-errors.ts'
import { keySegments, StorageError } from './storage.ts'

/** Where the key's file belongs, whether or not it is there yet. The root itself must be. */
export async function findPlace(root: string, key: string): Promise<string> {
  await stat(root)
  const { folders, name } = split(key)
  let path = root
  for (const folder of folders) {
    path = join(path, folder)
    const found = await lstat(path).catch(nullIfUntrusted)
    if (found && !found.isDirectory()) {
      throw new StorageError('STORAGE', `${path} is a link or a file where a folder belongs; nothing was followed`)
    }
  }
  return join(path, name)
}

/** The same, with its folders made, and lasting: a new folder is lost in a power cut unless its parent is synced. */
export async function makePlace(root: string, key: string): Promise<string> {
  let parent = root
  for (const folder of split(key).folders) {
    const path = join(parent, folder)
    const isNew = await mkdir(path).then(
      () => true,
      (error: unknown) => fsCode(error) !== 'EEXIST' && Promise.reject(error),
    )
    if (isNew) {
      await using handle = await openFolder(parent)
      await handle.sync()
    }
    parent = path
  }
  return findPlace(root, key)
}

export function openFolder(path: string): Promise<FileHandle> {
  return open(path, constants.O_RDONLY | constants.O_DIRECTORY)
}

function split(key: string): { folders: string[]; name: string } {
  const segments = keySegments(key)
  return { folders: segments.slice(0, -1), name: segments.at(-1) ?? '' }
}

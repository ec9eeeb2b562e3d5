/** Artifacts on a local disk: staged beside their target, then moved without replacing; no symbolic link is followed. */
import { linkSync, lstatSync, renameSync, unlinkSync } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import { dirname } from 'node:path'

import { digestFile, isSameDigest, openPlainFile } from './digest.ts'
import { publishInOrder, type Slot } from './fill.ts'
import { findPlace, makePlace, openFolder } from './folder.ts'
import { asStorageErrors, fsCode, nullIfUntrusted } from './fs-errors.ts'
import { stageCopy, stageText } from './stage.ts'
import { type Manifest, manifestKey, parseManifest, printManifest, type Storage, StorageError } from './storage.ts'

const MAX_MANIFEST_BYTES = 64 * 1024

/** `root` must be there: a disk that is not mounted is a failure, not a folder to create. */
export function createLocalStorage({ root }: { root: string }): Storage {
  const storage: Storage = {
    readManifest: (key) => asStorageErrors(key, async () => readManifestFile(manifestKey(await findPlace(root, key)))),

    verify: (key) =>
      asStorageErrors(key, async () => {
        const path = await findPlace(root, key)
        const manifest = await readManifestFile(manifestKey(path))
        if (!manifest) return null
        const found = await digestFile(path).catch(nullIfUntrusted)
        return found && isSameDigest(found, manifest) ? manifest : null
      }),

    async publish(publication) {
      const { key, manifest, beforeMove } = publication
      if (await storage.verify(key)) return 'exists'
      const path = await asStorageErrors(key, () => makePlace(root, key))
      await using folder = await asStorageErrors(key, () => openFolder(dirname(path)))
      await using artifact = await asStorageErrors(key, () => stageCopy(publication, path))
      await using seal = await asStorageErrors(key, () => stageText(printManifest(manifest), manifestKey(path)))
      return await publishInOrder(storage, publication, {
        artifact: slotAt({ key, path, folder, staged: artifact.path, beforeMove }),
        manifest: slotAt({ key, path: manifestKey(path), folder, staged: seal.path, beforeMove: undefined }),
      })
    },
  }
  return storage
}

interface Place {
  key: string
  path: string
  folder: FileHandle
  staged: string
  beforeMove: (() => Promise<void>) | undefined
}

function slotAt({ key, path, folder, staged, beforeMove }: Place): Slot {
  return {
    version: () => asStorageErrors(key, () => versionOf(path)),
    async put(over) {
      const { dev, ino } = await asStorageErrors(key, () => folder.stat({ bigint: true }))
      await beforeMove?.()
      return asStorageErrors(key, async () => {
        // From the fence to the move nothing is awaited, so that no other work of this process comes between.
        requireFolder(dirname(path), { dev, ino })
        const isMoved = over === null ? linkInto(staged, path) : replaceVersion(staged, path, over)
        // Synced before the manifest follows: a seal that survives a power cut means that its artifact did, too.
        if (isMoved) await folder.sync()
        return isMoved
      })
    },
  }
}

/** The folder we staged in may have been swapped for a link while we copied. */
function requireFolder(path: string, opened: { dev: bigint; ino: bigint }): void {
  const found = lstatSync(path, { bigint: true })
  if (found.isDirectory() && found.dev === opened.dev && found.ino === opened.ino) return
  throw new StorageError('STORAGE', `${path} was replaced while we published into it; nothing was followed`)
}

/** A hard link never replaces and never follows, unlike a rename. */
function linkInto(staged: string, path: string): boolean {
  try {
    linkSync(staged, path)
  } catch (error) {
    if (fsCode(error) === 'EEXIST') return false
    throw error
  }
  unlinkSync(staged)
  return true
}

function replaceVersion(staged: string, path: string, version: string): boolean {
  if (versionOf(path) !== version) return false
  renameSync(staged, path)
  return true
}

/** With its manifest's mark: what was judged without a seal is another version once it has one. */
function versionOf(path: string): string | null {
  const found = markOf(path)
  return found && `${found} ${markOf(manifestKey(path))}`
}

/** Inode numbers are used again; together with the change time they are not. */
function markOf(path: string): string | null {
  const found = lstatSync(path, { bigint: true, throwIfNoEntry: false })
  return found ? `${found.ino}-${found.ctimeNs}` : null
}

async function readManifestFile(path: string): Promise<Manifest | null> {
  const opened = await openPlainFile(path).catch(nullIfUntrusted)
  if (!opened) return null
  await using file = opened
  const { size } = await file.stat()
  return size > MAX_MANIFEST_BYTES ? null : parseManifest(await file.readFile('utf8'))
}

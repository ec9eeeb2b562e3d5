/** A place to work for each job and attempt, so that a late attempt never writes into a newer one's files. */
import type { Stats } from 'node:fs'
import { lstat, mkdir, readdir, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'

import { fsCode } from '../storage/fs-errors.ts'
import { encodeSegment, StorageError } from '../storage/storage.ts'

export interface ScratchPlace {
  root: string
  jobId: string
  attempt: number
  holder: string
}

const MAX_TRIES = 10

/** Makes the folder and answers its path. */
export async function openScratch(place: ScratchPlace): Promise<string> {
  const { jobFolder, path } = pathsOf(place)
  await mkdir(place.root, { recursive: true })
  for (let tries = 1; ; tries += 1) {
    try {
      await makeFolder(jobFolder)
      await makeFolder(path)
      return path
    } catch (error) {
      // The end of another attempt may remove the job's folder, empty just then, between any two of our steps.
      if (tries === MAX_TRIES || fsCode(error) !== 'ENOENT') throw error
    }
  }
}

/** Removes the attempt's folder, and the job's if that was the last one in it. */
export async function removeScratch(place: ScratchPlace): Promise<void> {
  const { jobFolder, path } = pathsOf(place)
  // A link to a folder is none: what it points to is not ours to remove.
  if (!(await statOf(jobFolder))?.isDirectory()) return
  await rm(path, { recursive: true, force: true })
  await removeIfEmpty(jobFolder)
}

/** Bytes of all files inside; links count as themselves. */
export async function sizeOf(path: string): Promise<number> {
  return (await look(path)).bytes
}

export interface SweptScratch {
  path: string
  bytes: number
}

export interface Sweep {
  removed: SweptScratch[]
  bytes: number
  failed: { path: string; error: unknown }[]
}

export interface SweepOptions {
  root: string
  olderThanHours: number
  isDryRun?: boolean
  onRemoved?: (swept: SweptScratch) => void
}

/** Removes what nobody has touched for so long; one folder that resists does not keep the others. */
export async function sweepScratch({ root, olderThanHours, isDryRun, onRemoved }: SweepOptions): Promise<Sweep> {
  const newestAllowedMs = Date.now() - olderThanHours * 3_600_000
  const sweep: Sweep = { removed: [], bytes: 0, failed: [] }
  for (const jobFolder of await foldersIn(root)) {
    for (const path of await foldersIn(jobFolder)) {
      try {
        const { bytes, newestMs } = await look(path)
        if (newestMs > newestAllowedMs) continue
        if (!isDryRun) await rm(path, { recursive: true, force: true })
        sweep.removed.push({ path, bytes })
        sweep.bytes += bytes
        onRemoved?.({ path, bytes })
      } catch (error) {
        sweep.failed.push({ path, error })
      }
    }
    // A young empty folder may be an attempt's that is opening right now; openScratch makes it again.
    if (!isDryRun) await removeIfEmpty(jobFolder)
  }
  return sweep
}

function pathsOf({ root, jobId, attempt, holder }: ScratchPlace): { jobFolder: string; path: string } {
  const jobFolder = join(root, encodeSegment(jobId))
  return { jobFolder, path: join(jobFolder, encodeSegment(`${attempt}-${holder}`)) }
}

/** Private, because inputs and half-made outputs lie there. */
async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: 0o700 })
  } catch (error) {
    if (fsCode(error) !== 'EEXIST') throw error
    if ((await lstat(path)).isDirectory()) return
    throw new StorageError('STORAGE', `${path} is a link or a file where a scratch folder belongs; it was not followed`)
  }
}

async function foldersIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(noneIfGone)
  return entries.filter((entry) => entry.isDirectory()).map((entry) => join(folder, entry.name))
}

/** Files may go while we look. */
async function look(path: string): Promise<{ bytes: number; newestMs: number }> {
  const found = await statOf(path)
  if (!found) return { bytes: 0, newestMs: 0 }
  if (!found.isDirectory()) return { bytes: found.size, newestMs: found.mtimeMs }
  const total = { bytes: 0, newestMs: found.mtimeMs }
  for (const name of await readdir(path).catch(noneIfGone)) {
    const { bytes, newestMs } = await look(join(path, name))
    total.bytes += bytes
    total.newestMs = Math.max(total.newestMs, newestMs)
  }
  return total
}

function statOf(path: string): Promise<Stats | null> {
  return lstat(path).catch((error: unknown) => noneIfGone(error)[0] ?? null)
}

async function removeIfEmpty(folder: string): Promise<void> {
  await rmdir(folder).catch((error: unknown) => {
    if (!['ENOTEMPTY', 'EEXIST', 'ENOENT'].includes(fsCode(error))) throw error
  })
}

function noneIfGone(error: unknown): never[] {
  if (fsCode(error) === 'ENOENT') return []
  throw error
}

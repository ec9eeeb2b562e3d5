/** What a failing disk means to a job: one transient code, with words an operator can act on. */
import { StorageError } from './storage.ts'

const EXPLANATIONS: Record<string, string> = {
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk quota is used up',
  EROFS: 'the file system is read-only',
  EACCES: 'permission denied',
  EPERM: 'permission denied, or a file system without hard links',
  ENOTSUP: 'the file system has no hard links',
  EOPNOTSUPP: 'the file system has no hard links',
  ENOENT: 'a folder or file is missing (is the storage root there and mounted?)',
}

export async function asStorageErrors<T>(key: string, act: () => Promise<T> | T): Promise<T> {
  try {
    return await act()
  } catch (error) {
    if (error instanceof StorageError) throw error
    const message = error instanceof Error ? error.message : String(error)
    const meaning = EXPLANATIONS[fsCode(error)] ?? 'storage failed'
    throw new StorageError('STORAGE', `${key}: ${meaning} (${message})`, error)
  }
}

/** Not there, a link, or no plain file: nothing to trust, and nothing wrong with the disk. */
export function nullIfUntrusted(error: unknown): null {
  if (['ENOENT', 'ELOOP', 'ENOTFILE', 'ENXIO'].includes(fsCode(error))) return null
  throw error
}

export function fsCode(error: unknown): string {
  const code = (error as { code?: unknown } | null)?.code
  return typeof code === 'string' ? code : ''
}

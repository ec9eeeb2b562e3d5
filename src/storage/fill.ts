/**
 * The order of a publication, the same on every storage: the artifact first, its manifest second, each placed without
 * replacing anything but the very version that was found invalid.
 *
 * Only an artifact with a matching manifest is trusted, so the manifest is the seal and comes last. A crash between the
 * two leaves an artifact without a seal: whole for a reader, but a retry replaces it. The other order would leave a seal
 * for bytes that are not there, and a second publisher's bytes would meet the first one's seal.
 */
import { type Publication, type Storage, StorageError } from './storage.ts'

/** One name in a storage. */
export interface Slot {
  /** What stands there now, as a mark that changes when it is replaced; null: nothing. */
  version(): Promise<string | null>
  /** Puts ours there, over nothing (null) or over exactly that version; false when somebody else was faster. */
  put(over: string | null): Promise<boolean>
}

const MAX_TRIES = 5

export async function publishInOrder(
  storage: Pick<Storage, 'verify'>,
  { key, replaceInvalid }: Pick<Publication, 'key' | 'replaceInvalid'>,
  slots: { artifact: Slot; manifest: Slot },
): Promise<'published' | 'exists'> {
  const isValid = async (): Promise<boolean> => (await storage.verify(key)) !== null
  const outcome = await fill(slots.artifact, { key, isValid, mayReplace: replaceInvalid })
  // A stale manifest, or one of a publisher that lost its lease half-way, must not speak for our bytes.
  if (outcome === 'published') await fill(slots.manifest, { key, isValid, mayReplace: true })
  return outcome
}

async function fill(
  slot: Slot,
  { key, isValid, mayReplace }: { key: string; isValid: () => Promise<boolean>; mayReplace: boolean },
): Promise<'published' | 'exists'> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    // The version is read before it is judged: whatever comes later has another one and stays.
    const seen = await slot.version()
    if (seen !== null && (await isValid())) return 'exists'
    if (seen !== null && !mayReplace) {
      throw new StorageError('STORAGE', `${key} is taken by something that does not match its manifest`)
    }
    if (await slot.put(seen)) return 'published'
  }
  throw new StorageError('STORAGE', `${key} is being changed by others all the time`)
}

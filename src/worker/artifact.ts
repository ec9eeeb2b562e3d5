/** From a handler's file to a published artifact, at most once: reuse a valid one, refuse an empty one, seal the rest. */
import { extname } from 'node:path'

import { type Digest, digestFile } from '../storage/digest.ts'
import { type Manifest, type Storage, StorageError } from '../storage/storage.ts'

export interface ArtifactInput {
  storage: Storage
  key: string
  file: string
  table: string
  jobId: string
  attempt: number
  /** Looks into the file (is it playable, is it JSON) and throws if it is not what it should be. */
  validate?: (file: string) => Promise<void>
  /** Asks the database whether we still hold the job, and throws if not. */
  confirm: () => Promise<void>
}

export interface Published {
  /** `exists`: an earlier attempt's artifact was valid and stays. */
  outcome: 'published' | 'exists'
  /** Of the artifact that stands under the key now. */
  manifest: Manifest
}

const CONTENT_TYPES: Record<string, string> = { '.mp4': 'video/mp4', '.json': 'application/json' }

/** The artifact of an earlier attempt that got as far as publishing, if it is whole. Another job's is never taken for ours. */
export async function reuse(
  storage: Storage,
  key: string,
  owner: { table: string; jobId: string },
): Promise<Manifest | null> {
  const manifest = await storage.verify(key)
  if (manifest) requireOwner(manifest, key, owner)
  return manifest
}

/** Two tables may number their jobs alike; whoever published first keeps the key, and the other is told. */
function requireOwner(manifest: Manifest, key: string, { table, jobId }: { table: string; jobId: string }): void {
  if (manifest.jobId === jobId && (manifest.table ?? table) === table) return
  const owner = `job ${manifest.jobId}${manifest.table ? ` of ${manifest.table}` : ''}`
  throw new StorageError('ARTIFACT_TAKEN', `${key} belongs to ${owner}; publish under a name of your own`)
}

export async function publishArtifact(input: ArtifactInput): Promise<Published> {
  const { storage, key, file, table, jobId, attempt, validate, confirm } = input
  // Hashed before it is validated: only these very bytes will be published, so what was looked at is what stands there.
  const digest = await readDigest(file)
  if (digest.size === 0) throw new StorageError('EMPTY_ARTIFACT', `${file} is empty; nothing was published`)
  await validate?.(file)
  const contentType = CONTENT_TYPES[extname(key)]
  const manifest: Manifest = {
    ...digest,
    ...(contentType !== undefined && { contentType }),
    table,
    jobId,
    attempt,
    at: new Date().toISOString(),
  }
  const outcome = await storage.publish({ file, key, manifest, replaceInvalid: true, beforeMove: confirm })
  if (outcome === 'published') return { outcome, manifest }
  const existing = (await storage.readManifest(key)) ?? manifest
  requireOwner(existing, key, { table, jobId })
  return { outcome, manifest: existing }
}

async function readDigest(file: string): Promise<Digest> {
  try {
    return await digestFile(file)
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new StorageError('EMPTY_ARTIFACT', `there is no file to publish (${reason})`, error)
  }
}

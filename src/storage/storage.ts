/** Where finished artifacts live: one small interface, the manifest that makes an artifact trustworthy, and safe keys. */
import { z } from 'zod'

export const manifestSchema = z.object({
  size: z.int().nonnegative(),
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
  contentType: z.string().exactOptional(),
  /** The table of the job; ids of two tables may be the same number. */
  table: z.string().exactOptional(),
  jobId: z.string(),
  attempt: z.int(),
  at: z.string(),
})
export type Manifest = z.infer<typeof manifestSchema>

export interface Publication {
  file: string
  key: string
  manifest: Manifest
  /** Whether something at the key that does not match its manifest (truncated, foreign) may be replaced. */
  replaceInvalid: boolean
  /** The fence: runs right before anything becomes visible under the key; what it throws comes through unchanged. */
  beforeMove?: () => Promise<void>
}

export interface Storage {
  /** `exists`: a valid artifact was there already and was not touched. */
  publish(publication: Publication): Promise<'published' | 'exists'>
  readManifest(key: string): Promise<Manifest | null>
  /** The manifest, if the artifact is there and matches it. */
  verify(key: string): Promise<Manifest | null>
}

/** `STORAGE` and `EMPTY_ARTIFACT` may pass with a retry, `VALIDATION` and `ARTIFACT_TAKEN` never do. */
export type StorageCode = 'STORAGE' | 'VALIDATION' | 'EMPTY_ARTIFACT' | 'ARTIFACT_TAKEN'

export class StorageError extends Error {
  readonly code: StorageCode
  readonly permanent: boolean

  constructor(code: StorageCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'StorageError'
    this.code = code
    this.permanent = code === 'VALIDATION' || code === 'ARTIFACT_TAKEN'
  }
}

/** Leaves room for our suffixes within the 255 bytes of a file name. */
const MAX_SEGMENT_LENGTH = 200
const MANIFEST_SUFFIX = '.manifest.json'

export function artifactKey(jobId: string, name: string): string {
  // A leading dot marks our temporary files, and the suffix belongs to the manifests.
  if (/[/\\]/.test(name) || name.startsWith('.') || name.endsWith(MANIFEST_SUFFIX)) {
    throw new StorageError('VALIDATION', `${JSON.stringify(name.slice(0, 80))} is no name for an artifact`)
  }
  return `results/${encodeSegment(jobId)}/${encodeSegment(name)}`
}

export function manifestKey(key: string): string {
  return `${key}${MANIFEST_SUFFIX}`
}

/** One path segment from any text: two different texts never meet, and none leads elsewhere. */
export function encodeSegment(text: string): string {
  const shown = JSON.stringify(text.slice(0, 80))
  if (!text.isWellFormed()) throw new StorageError('VALIDATION', `${shown} is not valid Unicode`)
  const encoded = text.replaceAll(/[^A-Za-z0-9._-]/gu, percentEncode)
  if (['', '.', '..'].includes(encoded)) throw new StorageError('VALIDATION', `${shown} cannot name a folder or file`)
  if (encoded.length > MAX_SEGMENT_LENGTH) {
    throw new StorageError('VALIDATION', `${shown}… is longer than ${MAX_SEGMENT_LENGTH} characters once encoded`)
  }
  return encoded
}

/** Guards a storage against a key that did not come from `artifactKey`. */
export function keySegments(key: string): string[] {
  const segments = key.split('/')
  if (segments.some((segment) => !/^[A-Za-z0-9._%-]+$/.test(segment) || segment === '.' || segment === '..')) {
    throw new StorageError('VALIDATION', `${JSON.stringify(key.slice(0, 80))} is no artifact key`)
  }
  return segments
}

/** A manifest that is not one counts as none. */
export function parseManifest(text: string): Manifest | null {
  try {
    return manifestSchema.safeParse(JSON.parse(text)).data ?? null
  } catch {
    return null
  }
}

export function printManifest(manifest: Manifest): string {
  return `${JSON.stringify(manifest, null, 2)}\n`
}

function percentEncode(character: string): string {
  return [...new TextEncoder().encode(character)]
    .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
    .join('')
}

/**
 * Artifacts in S3 or anything that speaks it. A PUT is whole or nothing, and conditional: over nothing, or over exactly
 * the version found invalid. The hash is signed with the request, so the server itself refuses other bytes.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import { openPlainFile } from './digest.ts'
import { publishInOrder, type Slot } from './fill.ts'
import { EMPTY_SHA256, encodePath, signedHeaders, type Signer } from './sigv4.ts'
import {
  keySegments,
  type Manifest,
  manifestKey,
  parseManifest,
  printManifest,
  type Storage,
  StorageError,
} from './storage.ts'

export interface S3Options extends Signer {
  /** With its scheme, e.g. `https://s3.eu-central-1.amazonaws.com` or `http://127.0.0.1:9000`; the bucket goes into the path. */
  endpoint: string
  bucket: string
  /** Stands before every key, e.g. `media/`. */
  prefix?: string
}

/** S3 takes no more in a single PUT. */
const MAX_PUT_BYTES = 5 * 1024 ** 3
const ANSWER_LIMIT_MS = 30_000
/** An upload slower than this is taken for a dead connection. */
const LEAST_BYTES_PER_SEC = 64 * 1024

/** A busy server or a stale connection must not cost an attempt that took an hour. */
const RETRY_AFTER_MS = [200, 2000]

interface Call {
  method: 'GET' | 'HEAD' | 'PUT'
  key: string
  headers?: Record<string, string>
  body?: Body
}

interface Body {
  open: () => Promise<ReadableStream> | string
  size: number
  sha256: string
}

export function createS3Storage(options: S3Options): Storage {
  const { endpoint, bucket, prefix = '' } = options

  async function call(request: Call): Promise<Response> {
    for (const pauseMs of RETRY_AFTER_MS) {
      const answer = await send(request).catch((error: unknown) => {
        if (error instanceof StorageError) throw error
        return null
      })
      if (answer && answer.status < 500) return answer
      await sleep(pauseMs)
    }
    try {
      return await send(request)
    } catch (error) {
      if (error instanceof StorageError) throw error
      const reason = error instanceof Error ? error.message : String(error)
      throw new StorageError('STORAGE', `${request.key}: no answer from ${endpoint} (${reason})`, error)
    }
  }

  async function send({ method, key, headers = {}, body }: Call): Promise<Response> {
    const url = new URL(`${endpoint.replace(/\/+$/, '')}/${encodePath(`${bucket}/${prefix}${key}`)}`)
    const signed = signedHeaders({ method, url, headers, payloadSha256: body?.sha256 ?? EMPTY_SHA256 }, options)
    return fetch(url, {
      method,
      headers: body ? { ...signed, 'content-length': String(body.size) } : signed,
      body: (await body?.open()) ?? null,
      redirect: 'manual',
      signal: AbortSignal.timeout(ANSWER_LIMIT_MS + ((body?.size ?? 0) / LEAST_BYTES_PER_SEC) * 1000),
    })
  }

  async function readManifest(key: string): Promise<Manifest | null> {
    keySegments(key)
    const answer = await call({ method: 'GET', key: manifestKey(key) })
    if (answer.status === 404) return null
    if (!answer.ok) throw await refused(answer, key)
    return parseManifest(await answer.text())
  }

  function slotAt(key: string, put: (condition: Record<string, string>) => Promise<Response>): Slot {
    return {
      async version() {
        const answer = await call({ method: 'HEAD', key })
        if (answer.status === 404) return null
        if (!answer.ok) throw await refused(answer, key)
        return answer.headers.get('etag') ?? ''
      },
      async put(over) {
        const answer = await put(over === null ? { 'if-none-match': '*' } : { 'if-match': over })
        if (answer.ok) return true
        const error = await refused(answer, key)
        // 412: somebody was faster. 409: somebody is at it right now. NoSuchKey: what we saw has been deleted since.
        if (answer.status === 412 || answer.status === 409 || error.message.includes('NoSuchKey')) return false
        throw error
      },
    }
  }

  const storage: Storage = {
    readManifest,

    async verify(key) {
      const manifest = await readManifest(key)
      if (!manifest) return null
      const answer = await call({ method: 'HEAD', key })
      if (answer.status === 404) return null
      if (!answer.ok) throw await refused(answer, key)
      const isSame =
        Number(answer.headers.get('content-length')) === manifest.size &&
        answer.headers.get('x-amz-meta-sha256') === manifest.sha256
      return isSame ? manifest : null
    },

    async publish(publication) {
      const { file, key, manifest, beforeMove } = publication
      if (manifest.size > MAX_PUT_BYTES) throw new StorageError('VALIDATION', `${key} is larger than 5 GB`)
      if (await storage.verify(key)) return 'exists'
      const digest = { size: manifest.size, sha256: manifest.sha256 }
      const type = { 'content-type': manifest.contentType ?? 'application/octet-stream' }
      const text = printManifest(manifest)
      const seal: Body = { open: () => text, size: Buffer.byteLength(text), sha256: sha256Of(text) }
      return publishInOrder(storage, publication, {
        artifact: slotAt(key, async (condition) => {
          await beforeMove?.()
          const headers = { ...type, ...condition, 'x-amz-meta-sha256': manifest.sha256 }
          return call({ method: 'PUT', key, headers, body: { ...digest, open: () => openUpload(file) } })
        }),
        manifest: slotAt(manifestKey(key), async (condition) => {
          // An upload may take longer than a lease: the artifact counts only if the fence still holds at its end.
          await beforeMove?.()
          const headers = { 'content-type': 'application/json', ...condition }
          return call({ method: 'PUT', key: manifestKey(key), headers, body: seal })
        }),
      })
    },
  }
  return storage
}

/** A stream, because over TLS fetch reads a file given as a Blob into memory (measured: 824 MB for one of 400 MB). */
async function openUpload(file: string): Promise<ReadableStream> {
  try {
    const handle = await openPlainFile(file)
    return Readable.toWeb(handle.createReadStream()) as ReadableStream
  } catch (error) {
    throw new StorageError('STORAGE', `${file} cannot be read (${String(error)})`, error)
  }
}

async function refused(answer: Response, key: string): Promise<StorageError> {
  const text = await answer.text().catch(() => '')
  const code = /<Code>([^<]{1,100})<\/Code>/.exec(text)?.[1]
  const why = [code, /<Message>([^<]{1,300})<\/Message>/.exec(text)?.[1]].filter(Boolean).join(': ')
  return new StorageError('STORAGE', `${key}: the storage answered ${answer.status}${why ? ` (${why})` : ''}`)
}

function sha256Of(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

/**
 * Signs one S3 request in its headers (AWS Signature Version 4). Bun's S3Client cannot send If-None-Match, and its
 * presigned URLs sign no header but the host, while S3 refuses metadata that is not signed; hence by hand.
 */
import { createHash, createHmac } from 'node:crypto'

export interface Signer {
  region: string
  accessKeyId: string
  secretAccessKey: string
}

export interface Unsigned {
  method: string
  /** Its path already encoded as S3 wants it: see `encodePath`. No query. */
  url: URL
  headers: Record<string, string>
  /** Hex hash of the body: the server refuses any other bytes. */
  payloadSha256: string
}

export const EMPTY_SHA256 = createHash('sha256').digest('hex')

export function signedHeaders(request: Unsigned, signer: Signer, now = new Date()): Record<string, string> {
  const moment = now.toISOString().replaceAll(/[-:]|\.\d+/g, '')
  const day = moment.slice(0, 8)
  const headers = lowerCased({
    ...request.headers,
    host: request.url.host,
    'x-amz-date': moment,
    'x-amz-content-sha256': request.payloadSha256,
  })
  const names = Object.keys(headers).toSorted()
  const canonical = [
    request.method,
    request.url.pathname,
    '',
    ...names.map((name) => `${name}:${headers[name]?.trim()}`),
    '',
    names.join(';'),
    request.payloadSha256,
  ].join('\n')
  const scope = `${day}/${signer.region}/s3/aws4_request`
  const text = ['AWS4-HMAC-SHA256', moment, scope, createHash('sha256').update(canonical).digest('hex')].join('\n')
  const key = [day, signer.region, 's3', 'aws4_request'].reduce<string | Buffer>(hmac, `AWS4${signer.secretAccessKey}`)
  return {
    ...headers,
    authorization: `AWS4-HMAC-SHA256 Credential=${signer.accessKeyId}/${scope}, SignedHeaders=${names.join(';')}, Signature=${hmac(key, text).toString('hex')}`,
  }
}

/** Everything but letters, digits, `-_.~` and the slashes is percent-encoded, once. */
export function encodePath(path: string): string {
  return encodeURIComponent(path)
    .replaceAll('%2F', '/')
    .replaceAll(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`)
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest()
}

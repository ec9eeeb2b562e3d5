/** A small S3 in memory that checks what the real one checks: the signature, the signed hash, and conditional PUTs. */
import { createHash, createHmac } from 'node:crypto'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'

interface StoredObject {
  bytes: Buffer
  headers: Record<string, string>
}

export interface S3Server extends AsyncDisposable {
  endpoint: string
  credentials: { region: string; accessKeyId: string; secretAccessKey: string }
  objects: Map<string, StoredObject>
  /** Requests seen so far, as `PUT /bucket/key`. */
  requests: string[]
  /** Answers to give instead of the true one, in order. */
  trouble: number[]
}

export async function startS3Server(): Promise<S3Server> {
  const credentials = { region: 'eu-test-1', accessKeyId: 'TESTKEY', secretAccessKey: 'test+secret/key' }
  const objects: S3Server['objects'] = new Map()
  const requests: string[] = []
  const trouble: number[] = []
  const server = createServer((request, response) => {
    void readAll(request).then((body) => {
      const path = (request.url ?? '').split('?')[0] ?? ''
      requests.push(`${request.method} ${path}`)
      const troubled = trouble.shift()
      const answer = troubled ? refuse(troubled, 'SlowDown') : answerTo(request, path, body)
      response.writeHead(answer.status, { 'content-length': answer.bytes.length, ...answer.headers })
      response.end(request.method === 'HEAD' ? undefined : answer.bytes)
    })
  })

  function answerTo(request: IncomingMessage, path: string, body: Buffer): Answer {
    const fault = findFault(request, path, body, credentials.secretAccessKey)
    if (fault) return refuse(403, fault)
    const stored = objects.get(path)
    if (request.method !== 'PUT') {
      return stored ? { status: 200, ...stored } : refuse(404, 'NoSuchKey')
    }
    const { 'if-none-match': ifNoneMatch, 'if-match': ifMatch } = request.headers
    if (ifNoneMatch === '*' && stored) return refuse(412, 'PreconditionFailed')
    if (ifMatch !== undefined && !stored) return refuse(404, 'NoSuchKey')
    if (ifMatch !== undefined && ifMatch !== stored?.headers.etag) return refuse(412, 'PreconditionFailed')
    const kept = Object.entries(request.headers).filter(([name]) => /^(content-type|x-amz-meta-.*)$/.test(name))
    const etag = `"${createHash('md5').update(body).digest('hex')}"`
    objects.set(path, { bytes: body, headers: { ...(Object.fromEntries(kept) as Record<string, string>), etag } })
    return { status: 200, bytes: Buffer.alloc(0), headers: { etag } }
  }

  await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready))
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    credentials,
    objects,
    requests,
    trouble,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((done) => server.close(done))
    },
  }
}

interface Answer extends StoredObject {
  status: number
}

function refuse(status: number, code: string): Answer {
  return { status, bytes: Buffer.from(`<Error><Code>${code}</Code></Error>`), headers: {} }
}

async function readAll(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of request) pieces.push(piece as Buffer)
  return Buffer.concat(pieces)
}

/** Written from the specification, apart from the signer it checks. */
function findFault(request: IncomingMessage, path: string, body: Buffer, secret: string): string | null {
  const [, day, region, signedNames, signature] =
    /Credential=[^/]+\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)/.exec(
      request.headers.authorization ?? '',
    ) ?? []
  if (!day || !region || !signedNames) return 'AccessDenied'
  const signed = signedNames.split(';')
  if (Object.keys(request.headers).some((name) => name.startsWith('x-amz-') && !signed.includes(name))) {
    return 'HeadersNotSigned'
  }
  const payload = String(request.headers['x-amz-content-sha256'])
  const canonical = `${request.method}\n${path}\n\n${signed.map((name) => `${name}:${String(request.headers[name])}\n`).join('')}\n${signedNames}\n${payload}`
  const text = `AWS4-HMAC-SHA256\n${String(request.headers['x-amz-date'])}\n${day}/${region}/s3/aws4_request\n${sha256(canonical)}`
  const hmac = (key: Buffer, value: string): Buffer => createHmac('sha256', key).update(value).digest()
  const key = hmac(hmac(hmac(hmac(Buffer.from(`AWS4${secret}`), day), region), 's3'), 'aws4_request')
  if (hmac(key, text).toString('hex') !== signature) return 'SignatureDoesNotMatch'
  return payload === 'UNSIGNED-PAYLOAD' || payload === sha256(body) ? null : 'XAmzContentSHA256Mismatch'
}

function sha256(value: string | Buffer): string {
  return createHash('sha256').update(value).digest('hex')
}

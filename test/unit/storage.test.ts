/** Artifacts: keys that stay inside, and one set of promises that local disk and S3 both keep. */
import { describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
} from 'node:fs'
import { join } from 'node:path'

import fc from 'fast-check'

import { createLocalStorage } from '../../src/storage/local.ts'
import { createS3Storage } from '../../src/storage/s3.ts'
import { encodePath, signedHeaders } from '../../src/storage/sigv4.ts'
import { artifactKey, type Manifest, manifestKey, type Storage } from '../../src/storage/storage.ts'
import { publishArtifact, reuse } from '../../src/worker/artifact.ts'
import { startS3Server } from '../support/s3-server.ts'
import { type TestFolder, testFolder } from '../support/test-folder.ts'

const KEY = artifactKey('job-1', 'clip.mp4')

function manifestOf(content: string, attempt = 1): Manifest {
  const sha256 = createHash('sha256').update(content).digest('hex')
  return { size: Buffer.byteLength(content), sha256, jobId: 'job-1', attempt, at: new Date().toISOString() }
}

interface Bench extends AsyncDisposable {
  storage: Storage
  folder: TestFolder
  /** Puts bytes under a key, past the storage. */
  plant(key: string, content: string): void
  remove(key: string): void
  read(key: string): string | null
  /** Changes whenever what stands there is replaced or rewritten. */
  mark(key: string): string
}

function localBench(): Promise<Bench> {
  const folder = testFolder()
  const at = (key: string): string => join(folder.path, 'root', key)
  folder.write('root/keep', '')
  return Promise.resolve({
    storage: createLocalStorage({ root: at('') }),
    folder,
    plant: (key, content) => void folder.write(join('root', key), content),
    remove: (key) => rmSync(at(key)),
    read: (key) => (existsSync(at(key)) ? readFileSync(at(key), 'utf8') : null),
    mark: (key) => `${lstatSync(at(key)).ino} ${lstatSync(at(key)).mtimeMs}`,
    [Symbol.asyncDispose]: () => Promise.resolve(folder[Symbol.dispose]()),
  })
}

async function s3Bench(): Promise<Bench> {
  const folder = testFolder()
  const server = await startS3Server()
  const at = (key: string): string => `/media/pre/${key}`
  const { endpoint, credentials, objects } = server
  return {
    storage: createS3Storage({ endpoint, bucket: 'media', prefix: 'pre/', ...credentials }),
    folder,
    plant: (key, content) => void objects.set(at(key), { bytes: Buffer.from(content), headers: { etag: content } }),
    remove: (key) => void objects.delete(at(key)),
    read: (key) => objects.get(at(key))?.bytes.toString() ?? null,
    mark: (key) => objects.get(at(key))?.headers.etag ?? '',
    async [Symbol.asyncDispose]() {
      folder[Symbol.dispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

function publish(bench: Bench, content: string, more: { replaceInvalid?: boolean; fence?: () => Promise<void> } = {}) {
  const { replaceInvalid = true, fence: beforeMove = () => Promise.resolve() } = more
  const file = bench.folder.write(`source-${Math.random()}`, content)
  return bench.storage.publish({ file, key: KEY, manifest: manifestOf(content), replaceInvalid, beforeMove })
}

describe.each([
  ['local disk', localBench],
  ['S3', s3Bench],
] as const)('on %s', (_name, open) => {
  test('publishes the whole file, sealed by its manifest', async () => {
    await using bench = await open()
    expect(await bench.storage.verify(KEY)).toBeNull()

    expect(await publish(bench, 'first cut')).toBe('published')

    expect(bench.read(KEY)).toBe('first cut')
    expect(JSON.parse(bench.read(manifestKey(KEY)) ?? '')).toMatchObject({ size: 9 })
    expect(await bench.storage.verify(KEY)).toMatchObject({ size: 9, sha256: manifestOf('first cut').sha256 })
    expect(await bench.storage.readManifest(KEY)).toMatchObject({ jobId: 'job-1', attempt: 1 })
  })

  test('X14: a second publication of other bytes leaves the first one as it is', async () => {
    await using bench = await open()
    await publish(bench, 'first cut')
    const before = [bench.mark(KEY), bench.mark(manifestKey(KEY))]

    expect(await publish(bench, 'director’s cut')).toBe('exists')

    expect(bench.read(KEY)).toBe('first cut')
    expect([bench.mark(KEY), bench.mark(manifestKey(KEY))]).toEqual(before)
  })

  test('X14: an artifact that comes while we are at the fence wins', async () => {
    await using bench = await open()
    let isFirst = true
    const late = publish(bench, 'late', {
      fence: async () => {
        if (isFirst) await publish(bench, 'in time')
        isFirst = false
      },
    })

    expect(await late).toBe('exists')
    expect(bench.read(KEY)).toBe('in time')
    expect(await bench.storage.verify(KEY)).not.toBeNull()
  })

  test('X14: a replacement that comes while we are at the fence, about to replace, wins', async () => {
    await using bench = await open()
    bench.plant(KEY, 'foreign')
    let isFirst = true
    const late = publish(bench, 'late', {
      fence: async () => {
        if (isFirst) await publish(bench, 'in time')
        isFirst = false
      },
    })

    expect(await late).toBe('exists')
    expect(bench.read(KEY)).toBe('in time')
  })

  test('X15: a truncated artifact is not trusted, and replaced under the fence', async () => {
    await using bench = await open()
    await publish(bench, 'first cut')
    bench.plant(KEY, 'first')
    let fenced = 0

    expect(await bench.storage.verify(KEY)).toBeNull()
    const fence = (): Promise<void> => Promise.resolve(void (fenced += 1))
    expect(await publish(bench, 'second cut', { fence })).toBe('published')

    expect(fenced).toBeGreaterThan(0)
    expect(bench.read(KEY)).toBe('second cut')
    expect(await bench.storage.verify(KEY)).toMatchObject({ size: 10 })
  })

  test('X15: bytes of the same length but another hash are not trusted', async () => {
    await using bench = await open()
    await publish(bench, 'first cut')
    bench.plant(KEY, 'FIRST CUT')

    expect(await bench.storage.verify(KEY)).toBeNull()
  })

  test('X15: a foreign file without a manifest is replaced only if allowed', async () => {
    await using bench = await open()
    bench.plant(KEY, 'foreign')

    await expect(publish(bench, 'ours', { replaceInvalid: false })).rejects.toMatchObject({ code: 'STORAGE' })
    expect(bench.read(KEY)).toBe('foreign')

    expect(await publish(bench, 'ours')).toBe('published')
    expect(bench.read(KEY)).toBe('ours')
    expect(await bench.storage.verify(KEY)).not.toBeNull()
  })

  test('W3: a crash between artifact and manifest heals with the retry', async () => {
    await using bench = await open()
    await publish(bench, 'first cut')
    bench.remove(manifestKey(KEY))

    expect(await bench.storage.verify(KEY)).toBeNull()
    expect(await publish(bench, 'second cut')).toBe('published')
    expect(await bench.storage.verify(KEY)).toMatchObject({ size: 10 })
  })

  test('a manifest left without its artifact does not speak for the next one', async () => {
    await using bench = await open()
    await publish(bench, 'first cut')
    bench.remove(KEY)

    expect(await bench.storage.verify(KEY)).toBeNull()
    expect(await publish(bench, 'second cut')).toBe('published')
    expect(await bench.storage.verify(KEY)).toMatchObject({ size: 10 })
  })

  test.each(['', '{', '[]', '{"size":9}', '"text"'])('a manifest of %p is none', async (text) => {
    await using bench = await open()
    await publish(bench, 'first cut')
    bench.plant(manifestKey(KEY), text)

    expect(await bench.storage.readManifest(KEY)).toBeNull()
    expect(await bench.storage.verify(KEY)).toBeNull()
  })

  test('a lost fence comes through as it was thrown, and nothing shows', async () => {
    await using bench = await open()
    const lost = new Error('lease lost')

    await expect(publish(bench, 'late', { fence: () => Promise.reject(lost) })).rejects.toBe(lost)

    expect(bench.read(KEY)).toBeNull()
    expect(bench.read(manifestKey(KEY))).toBeNull()
  })

  test('a file that changed since it was hashed is not published', async () => {
    await using bench = await open()
    const file = bench.folder.write('source', 'altered!!')
    const manifest = manifestOf('first cut')

    await expect(bench.storage.publish({ file, key: KEY, manifest, replaceInvalid: true })).rejects.toMatchObject({
      code: 'STORAGE',
    })
    expect(bench.read(KEY)).toBeNull()
  })

  test('publishers at the same moment end with one whole, sealed artifact', async () => {
    await using bench = await open()
    const contents = ['one', 'three', 'fifteen', 'one hundred']

    await Promise.all(contents.map((content) => publish(bench, content)))

    const manifest = await bench.storage.verify(KEY)
    expect(manifest).toMatchObject({ size: bench.read(KEY)?.length ?? -1 })
  })

  test.each(['../x', 'results/../x', 'results//x', '/etc/passwd', '', 'results/a\0b/x'])(
    'X13: refuses the key %p, which artifactKey would not make',
    async (key) => {
      await using bench = await open()
      await expect(bench.storage.verify(key)).rejects.toMatchObject({ code: 'VALIDATION' })
    },
  )

  test('publishArtifact seals what the handler made, and reuse finds it', async () => {
    await using bench = await open()
    const input = { storage: bench.storage, key: KEY, table: 'jobs', jobId: 'job-1', confirm: () => Promise.resolve() }
    const first = await publishArtifact({ ...input, file: bench.folder.write('a', 'first cut'), attempt: 1 })
    const second = await publishArtifact({ ...input, file: bench.folder.write('b', 'second cut'), attempt: 2 })

    expect(first).toMatchObject({ outcome: 'published', manifest: { size: 9, attempt: 1, contentType: 'video/mp4' } })
    expect(second).toEqual({ outcome: 'exists', manifest: first.manifest })
    expect(await reuse(bench.storage, KEY, { table: 'jobs', jobId: 'job-1' })).toEqual(first.manifest)
    // Another table may number its jobs alike: its job neither reuses nor replaces this artifact.
    const stranger = { ...input, table: 'asr_jobs', file: bench.folder.write('c', 'stranger'), attempt: 1 }
    await expect(publishArtifact(stranger)).rejects.toMatchObject({ code: 'ARTIFACT_TAKEN', permanent: true })
    await expect(reuse(bench.storage, KEY, { table: 'asr_jobs', jobId: 'job-1' })).rejects.toMatchObject({
      code: 'ARTIFACT_TAKEN',
    })
  })
})

describe('publishArtifact', () => {
  test('refuses an empty file and a missing one, transiently', async () => {
    await using bench = await localBench()
    const input = {
      storage: bench.storage,
      key: KEY,
      table: 'jobs',
      jobId: 'job-1',
      attempt: 1,
      confirm: () => Promise.resolve(),
    }

    for (const file of [bench.folder.write('empty', ''), join(bench.folder.path, 'missing')]) {
      await expect(publishArtifact({ ...input, file })).rejects.toMatchObject({ code: 'EMPTY_ARTIFACT' })
    }
    expect(bench.read(KEY)).toBeNull()
  })

  test('publishes nothing that does not pass validation', async () => {
    await using bench = await localBench()
    const file = bench.folder.write('clip', 'no video')
    const wrong = new Error('no video stream')
    const validate = (): Promise<void> => Promise.reject(wrong)
    const input = {
      storage: bench.storage,
      key: KEY,
      table: 'jobs',
      jobId: 'job-1',
      attempt: 1,
      confirm: () => Promise.resolve(),
    }

    await expect(publishArtifact({ ...input, file, validate })).rejects.toBe(wrong)
    expect(bench.read(KEY)).toBeNull()
  })

  test('X24: does not publish what a link in the scratch folder points to', async () => {
    await using bench = await localBench()
    const file = join(bench.folder.path, 'clip.mp4')
    symlinkSync('/etc/passwd', file)
    const input = {
      storage: bench.storage,
      key: KEY,
      table: 'jobs',
      jobId: 'job-1',
      attempt: 1,
      confirm: () => Promise.resolve(),
    }

    await expect(publishArtifact({ ...input, file })).rejects.toMatchObject({ code: 'EMPTY_ARTIFACT' })
  })
})

describe('artifactKey', () => {
  test.each([
    ['job-1', 'results/job-1/clip.mp4'],
    ['../../x', 'results/..%2F..%2Fx/clip.mp4'],
    ['a/b', 'results/a%2Fb/clip.mp4'],
    ['a\\b', 'results/a%5Cb/clip.mp4'],
    ['a\0b', 'results/a%00b/clip.mp4'],
    ['a%2Fb', 'results/a%252Fb/clip.mp4'],
    ['con', 'results/con/clip.mp4'],
    ['...', 'results/.../clip.mp4'],
    ['ä 🎬', 'results/%C3%A4%20%F0%9F%8E%AC/clip.mp4'],
    ['x'.repeat(200), `results/${'x'.repeat(200)}/clip.mp4`],
  ])('X13: keeps the id %p inside', (id, key) => {
    expect(artifactKey(id, 'clip.mp4')).toBe(key)
  })

  test.each(['', '.', '..', 'x'.repeat(201), '/'.repeat(70), 'x'.repeat(300), '\ud800'])(
    'X13: refuses the id %p',
    (id) => expect(() => artifactKey(id, 'clip.mp4')).toThrow(expect.objectContaining({ code: 'VALIDATION' })),
  )

  test.each(['', '.', '..', 'a/b', '../x', 'a\\b', '.hidden', 'clip.mp4.manifest.json'])(
    'refuses the name %p',
    (name) => expect(() => artifactKey('job-1', name)).toThrow(expect.objectContaining({ code: 'VALIDATION' })),
  )

  test('X13: any two ids that are accepted have different folders under results', () => {
    const keyOf = (id: string): string | null => {
      try {
        return artifactKey(id, 'clip.mp4')
      } catch {
        return null
      }
    }
    const id = fc.string({ unit: fc.constantFrom('.', '/', '%', '2', 'F', '\0', 'é', 'a', '\ud83c', '\udfac') })
    fc.assert(
      fc.property(id, id, (a, b) => {
        const [first, second] = [keyOf(a), keyOf(b)]
        if (first !== null) expect(join('/root', first).split('/').slice(0, 3)).toEqual(['', 'root', 'results'])
        if (first !== null) expect(join('/root', first).split('/')).toHaveLength(5)
        if (first !== null && a !== b) expect(first).not.toBe(second)
      }),
    )
  })
})

describe('local disk', () => {
  test('leaves nothing but artifact and manifest, also after a failure', async () => {
    await using bench = await localBench()
    const names = (): string[] => readdirSync(join(bench.folder.path, 'root/results/job-1')).toSorted()
    await publish(bench, 'late', { fence: () => Promise.reject(new Error('lost')) }).catch(() => undefined)
    expect(names()).toEqual([])

    await publish(bench, 'first cut')
    expect(names()).toEqual(['clip.mp4', 'clip.mp4.manifest.json'])
  })

  test('removes temporary files of dead publishers, and leaves those of live ones', async () => {
    await using bench = await localBench()
    const folder = join(bench.folder.path, 'root/results/job-1')
    let ours = ''
    await publish(bench, 'lost', {
      fence: () => {
        ours = readdirSync(folder).find((name) => name.startsWith('.clip.mp4.') && !name.includes('manifest')) ?? ''
        return Promise.reject(new Error('lost'))
      },
    }).catch(() => undefined)
    const [, host = ''] = /^\.clip\.mp4\.(\w{6})-/.exec(ours) ?? []
    const live = [`.clip.mp4.${host}-${process.ppid}-abcdef.tmp`, '.clip.mp4.000000-1-abcdef.tmp', '.other.tmp']
    const dead = [`.clip.mp4.${host}-4194305-abcdef.tmp`, `.clip.mp4.${host}-${process.pid}-abcdef.tmp`]
    const old = '.clip.mp4.000000-2-abcdef.tmp'
    for (const name of [...live, ...dead, old]) bench.plant(`results/job-1/${name}`, 'half')
    const beforeUsSec = Date.now() / 1000 - process.uptime() - 60
    utimesSync(join(folder, dead[1] ?? ''), beforeUsSec, beforeUsSec)
    utimesSync(join(folder, old), 1, 1)

    await publish(bench, 'first cut')

    expect(readdirSync(folder).toSorted()).toEqual([...live, 'clip.mp4', 'clip.mp4.manifest.json'].toSorted())
  })

  test('X24: a link planted at the final path is replaced, not followed', async () => {
    await using bench = await localBench()
    const secret = bench.folder.write('secret', 'secret')
    mkdirSync(join(bench.folder.path, 'root/results/job-1'), { recursive: true })
    for (const key of [KEY, manifestKey(KEY)]) symlinkSync(secret, join(bench.folder.path, 'root', key))

    expect(await bench.storage.verify(KEY)).toBeNull()
    expect(await publish(bench, 'ours')).toBe('published')

    expect(readFileSync(secret, 'utf8')).toBe('secret')
    expect(lstatSync(join(bench.folder.path, 'root', KEY)).isFile()).toBe(true)
    expect(await bench.storage.verify(KEY)).not.toBeNull()
  })

  test.each(['results', 'results/job-1'])('X24: a link planted at %s is refused', async (planted) => {
    await using bench = await localBench()
    mkdirSync(join(bench.folder.path, 'elsewhere'))
    mkdirSync(join(bench.folder.path, 'root', planted, '..'), { recursive: true })
    symlinkSync(join(bench.folder.path, 'elsewhere'), join(bench.folder.path, 'root', planted))

    await expect(publish(bench, 'ours')).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(/link/),
    })
    expect(readdirSync(join(bench.folder.path, 'elsewhere'))).toEqual([])
  })

  test('X24: a job folder swapped for a link while we copy is refused', async () => {
    await using bench = await localBench()
    const folder = join(bench.folder.path, 'root/results/job-1')
    const elsewhere = join(bench.folder.path, 'elsewhere')
    // What was staged goes along, so that a move through the link would work.
    const swap = (): Promise<void> => {
      renameSync(folder, elsewhere)
      symlinkSync(elsewhere, folder)
      return Promise.resolve()
    }

    await expect(publish(bench, 'ours', { fence: swap })).rejects.toMatchObject({ code: 'STORAGE' })
    expect(readdirSync(elsewhere)).not.toContain('clip.mp4')
  })

  test('a folder at the final path ends in a clear error', async () => {
    await using bench = await localBench()
    await publish(bench, 'first cut')
    bench.remove(KEY)
    mkdirSync(join(bench.folder.path, 'root', KEY))

    expect(await bench.storage.verify(KEY)).toBeNull()
    await expect(publish(bench, 'ours')).rejects.toMatchObject({ code: 'STORAGE' })
  })

  test('a pipe at the final path is replaced, and nobody waits for its writer', async () => {
    await using bench = await localBench()
    await publish(bench, 'first cut')
    for (const key of [KEY, manifestKey(KEY)]) {
      bench.remove(key)
      expect(spawnSync('mkfifo', [join(bench.folder.path, 'root', key)]).status).toBe(0)

      expect(await bench.storage.verify(KEY)).toBeNull()
      expect(await publish(bench, 'ours')).toBe('published')
      expect(await bench.storage.verify(KEY)).not.toBeNull()
    }
  })

  test('X25: a missing root is a transient failure, and is not created', async () => {
    await using bench = await localBench()
    rmSync(join(bench.folder.path, 'root'), { recursive: true })

    await expect(bench.storage.verify(KEY)).rejects.toMatchObject({ code: 'STORAGE' })
    await expect(publish(bench, 'ours')).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(/missing/),
    })
    expect(existsSync(join(bench.folder.path, 'root'))).toBe(false)
  })
})

describe('S3', () => {
  test('a wrong secret is refused by the server, with its own word for it', async () => {
    await using server = await startS3Server()
    const { endpoint, credentials } = server
    const storage = createS3Storage({ endpoint, bucket: 'media', ...credentials, secretAccessKey: 'wrong' })

    await expect(storage.verify(KEY)).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(/403.*SignatureDoesNotMatch/),
    })
  })

  test('keys with percent signs are signed as the server reads them', async () => {
    await using bench = await s3Bench()
    const key = artifactKey('a/b ä', 'clip.mp4')
    const file = bench.folder.write('source', 'first cut')

    const manifest = manifestOf('first cut')
    expect(await bench.storage.publish({ file, key, manifest, replaceInvalid: true })).toBe('published')
    expect(await bench.storage.verify(key)).toEqual(manifest)
  })

  test('a server in trouble for a moment costs no attempt', async () => {
    await using server = await startS3Server()
    using folder = testFolder()
    const { endpoint, credentials, trouble } = server
    const storage = createS3Storage({ endpoint, bucket: 'media', ...credentials })
    trouble.push(503, 500)

    const file = folder.write('source', 'first cut')
    const manifest = manifestOf('first cut')
    expect(await storage.publish({ file, key: KEY, manifest, replaceInvalid: true })).toBe('published')
  })

  test('the fence is asked again between a long upload and its manifest', async () => {
    await using bench = await s3Bench()
    let asked = 0
    const fence = async (): Promise<void> => {
      asked += 1
      if (asked === 2) throw new Error('lease lost')
    }

    await expect(publish(bench, 'late', { fence })).rejects.toThrow('lease lost')
    expect(await bench.storage.verify(KEY)).toBeNull()
    expect(await publish(bench, 'in time')).toBe('published')
    expect(bench.read(KEY)).toBe('in time')
  })

  test('a server that is not there is a transient failure', async () => {
    const nowhere = { endpoint: 'http://127.0.0.1:1', bucket: 'media', region: 'x', accessKeyId: 'x' }
    const storage = createS3Storage({ ...nowhere, secretAccessKey: 'x' })

    await expect(storage.verify(KEY)).rejects.toMatchObject({
      code: 'STORAGE',
      message: expect.stringMatching(/no answer/),
    })
  })

  test('the test’s server accepts Bun’s own client, and only with the right secret', async () => {
    await using server = await startS3Server()
    const { endpoint, credentials } = server
    const write = (more: object) =>
      new Bun.S3Client({ endpoint, bucket: 'media', ...credentials, ...more }).write('a b/c%20d', 'hello')

    await write({})
    expect(server.objects.get('/media/a%20b/c%2520d')?.bytes.toString()).toBe('hello')
    await expect(write({ secretAccessKey: 'wrong' })).rejects.toThrow()
  })

  /** The examples of the S3 manual, "Signature Calculations for the Authorization Header". */
  test.each([
    [
      'GET',
      '/test.txt',
      { range: 'bytes=0-9' },
      'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
      'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
    ],
    [
      'PUT',
      '/test$file.text',
      { date: 'Fri, 24 May 2013 00:00:00 GMT', 'x-amz-storage-class': 'REDUCED_REDUNDANCY' },
      '44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072',
      '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
    ],
  ])('signs %s %s as the manual does', (method, path, headers, payloadSha256, signature) => {
    const url = new URL(`https://examplebucket.s3.amazonaws.com${encodePath(path)}`)
    const signer = {
      region: 'us-east-1',
      accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
      secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
    }

    const signed = signedHeaders(
      { method, url, headers: { ...headers }, payloadSha256 },
      signer,
      new Date('2013-05-24'),
    )

    expect(signed.authorization).toEndWith(`Signature=${signature}`)
  })
})

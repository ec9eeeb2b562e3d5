/** What a child prints, in bounded memory: the last part of it as text, and every line as it comes. */
import type { ChildProcess } from 'node:child_process'
import { StringDecoder } from 'node:string_decoder'

import { createFfmpegProgress } from '../job/ffmpeg-progress.ts'

export interface Listeners {
  durationMs?: number
  onProgress?: (pct: number) => void | Promise<void>
  onLine?: (line: string) => void | Promise<void>
}

const OUTPUT_BYTES = 64 * 1024
const LINE_CHARS = 64 * 1024

/** Reads both outputs and tells the listeners; answers what to call for the last 64 kB of each. After the first error of a listener nobody is told any more. */
export function readOutput(
  child: ChildProcess,
  { durationMs, onProgress, onLine }: Listeners,
  onError: (error: unknown) => void,
): () => { stdout: string; stderr: string } {
  let isBroken = false
  const tell = async <T>(listener: (value: T) => void | Promise<void>, value: T): Promise<void> => {
    if (isBroken) return
    try {
      await listener(value)
    } catch (error) {
      isBroken = true
      onError(error)
    }
  }
  const percentage = durationMs !== undefined && onProgress ? createFfmpegProgress(durationMs) : null
  const hear = (line: string): void => {
    const pct = percentage?.(line) ?? null
    // All is written, but not yet well ended.
    if (pct !== null && pct < 100 && onProgress) void tell(onProgress, pct)
    if (onLine) void tell(onLine, line)
  }
  const [stdout, stderr] = [child.stdout, child.stderr].map((stream) => {
    const tail = createTail(OUTPUT_BYTES)
    const lines = onLine || (percentage && stream === child.stdout) ? createLines(hear, LINE_CHARS) : null
    stream?.on('data', (chunk: Buffer) => {
      tail.push(chunk)
      lines?.push(chunk)
    })
    stream?.once('end', () => lines?.end())
    stream?.on('error', () => undefined)
    return tail
  })
  return () => ({ stdout: stdout?.text() ?? '', stderr: stderr?.text() ?? '' })
}

/** Keeps the last `maxBytes`. Trimmed only when twice as much is there, so that many small chunks cost little. */
export function createTail(maxBytes: number): { push(chunk: Buffer): void; text(): string } {
  let chunks: Buffer[] = []
  let size = 0
  let isCut = false
  const trim = (): Buffer => {
    const kept = Buffer.concat(chunks).subarray(-maxBytes)
    isCut ||= size > maxBytes
    // A copy: a view would keep the large buffer alive.
    chunks = [Buffer.from(kept)]
    size = kept.length
    return kept
  }
  return {
    push(chunk) {
      chunks.push(chunk)
      size += chunk.length
      if (size > 2 * maxBytes) trim()
    },
    text() {
      const kept = trim()
      if (!isCut) return kept.toString('utf8')
      // The cut may have gone through a character: its remaining bytes are left out.
      let start = 0
      while (start < 3 && ((kept[start] ?? 0) & 0xc0) === 0x80) start += 1
      return kept.toString('utf8', start)
    },
  }
}

/** Calls `onLine` for every line, also for the last one without an end. Longer lines are cut at `maxChars`. */
export function createLines(
  onLine: (line: string) => void,
  maxChars: number,
): { push(chunk: Buffer): void; end(): void } {
  const decoder = new StringDecoder('utf8')
  let open = ''
  const extend = (text: string): void => {
    if (open.length < maxChars) open += text.slice(0, maxChars - open.length)
  }
  const push = (text: string): void => {
    // ffmpeg ends the lines of its status display with \r alone.
    const parts = text.split(/[\r\n]/)
    for (const [at, part] of parts.entries()) {
      extend(part)
      if (at === parts.length - 1) break
      if (open !== '') onLine(open)
      open = ''
    }
  }
  return {
    push: (chunk) => push(decoder.write(chunk)),
    end: () => push(`${decoder.end()}\n`),
  }
}

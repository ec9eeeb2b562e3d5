/** Three stages of a clip pipeline on real ffmpeg: cut a clip, burn a subtitle in, find what is said when. */
import { access, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'

import { z } from 'zod'

import { type HandlerContext, type Handlers, JobError } from '../../src/index.ts'
import { findFfmpeg } from './ffmpeg.ts'
import { drawPixelText } from './pixel-text.ts'
import { createSpeechFinder } from './speech.ts'

/** Without one, the worker says that there is no such program: permanent, by name. */
const FFMPEG = findFfmpeg() ?? 'ffmpeg'
/** Not -nostdin: with it, ffmpeg 7.0 does not hear SIGTERM. What `run` starts has an empty input anyway. */
const QUIET = ['-hide_banner', '-v', 'error', '-progress', 'pipe:1', '-y']
const H264 = ['-c:v', 'libx264', '-preset', 'veryfast', '-pix_fmt', 'yuv420p', '-movflags', '+faststart']

/** A file, or a picture or tone that ffmpeg makes up: `lavfi:testsrc=size=640x360:rate=25`. No filter that reads other files. */
const source = z
  .string()
  .regex(/^(?!lavfi:)[^\0]+$|^lavfi:(testsrc2?|smptebars|color|sine|aevalsrc)(=[\w.:=*+()/-]*)?$/)
const clipPayload = z.object({
  source,
  startSec: z.number().min(0).default(0),
  durationSec: z.number().positive().max(86_400),
})
const burninPayload = clipPayload.extend({ text: z.string().min(1).max(50) })
type Cut = z.infer<typeof clipPayload>

export default {
  async clip(context) {
    const payload = parse(clipPayload, context)
    const input = await openSource(payload, context)
    const file = join(context.scratchDir, 'clip.mp4')
    await encode(context, payload, [...input, ...H264, file])
    await context.publish(file, { name: 'clip.mp4', validate: (made) => playThrough(context, made) })
  },

  async burnin(context) {
    const payload = parse(burninPayload, context)
    const input = await openSource(payload, context)
    // With fonts on the machine, ffmpeg's own subtitles or drawtext filter is prettier. This works without any.
    const letters = join(context.scratchDir, 'text.pgm')
    await writeFile(letters, drawPixelText(payload.text))
    const file = join(context.scratchDir, 'clip.mp4')
    const burn = '[1]scale=iw*2:-1:flags=neighbor[text];[0][text]overlay=(W-w)/2:H-h*2'
    await encode(context, payload, [...input, '-i', letters, '-filter_complex', burn, ...H264, file])
    await context.publish(file, { name: 'clip.mp4', validate: (made) => playThrough(context, made) })
  },

  async asr(context) {
    const payload = parse(clipPayload, context)
    const input = await openSource(payload, context)
    const speech = createSpeechFinder()
    await encode(context, payload, [...input, '-vn', '-af', speech.filter, '-f', 'null', '-'], speech.hear)
    const file = join(context.scratchDir, 'transcript.json')
    await writeFile(file, JSON.stringify({ source: payload.source, segments: speech.segments() }, null, 2))
    await context.publish(file, { name: 'transcript.json' })
  },
} satisfies Handlers

/** A payload that makes no sense will make none at the next attempt either. */
function parse<T>(schema: z.ZodType<T>, { job }: HandlerContext): T {
  const parsed = schema.safeParse(job.payload)
  if (parsed.success) return parsed.data
  throw new JobError('VALIDATION', z.prettifyError(parsed.error), { permanent: true })
}

/** A file that is not there may be there later: that is transient. What it names may not reach out to the network. */
async function openSource({ source, startSec, durationSec }: Cut, context: HandlerContext): Promise<string[]> {
  const isMadeUp = source.startsWith('lavfi:')
  if (!isMadeUp) await access(source)
  await context.event('source:ready', { source })
  const input = isMadeUp
    ? ['-f', 'lavfi', '-i', source.slice('lavfi:'.length)]
    : ['-protocol_whitelist', 'file', '-i', `file:${resolve(source)}`]
  return [...(startSec > 0 ? ['-ss', String(startSec)] : []), '-t', String(durationSec), ...input]
}

async function encode(
  context: HandlerContext,
  { durationSec }: Cut,
  args: string[],
  onLine: (line: string) => void = () => undefined,
): Promise<void> {
  await context.run([FFMPEG, ...QUIET, ...args], {
    durationMs: durationSec * 1000,
    onProgress: (pct) => context.progress(pct),
    onLine,
  })
}

/** Decodes all of it; the first fault is an error. */
async function playThrough({ run }: HandlerContext, file: string): Promise<void> {
  await run([FFMPEG, '-v', 'error', '-xerror', '-i', file, '-f', 'null', '-'])
}

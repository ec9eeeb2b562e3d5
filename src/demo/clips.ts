/** The handlers of the demo's workers: clips by a real ffmpeg, at the pace of real time, or something that only looks like one. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import type { HandlerContext, Handlers } from '../worker/handler.ts'

export interface ClipOrder {
  clip: number
  seconds: number
}

const QUIET = ['ffmpeg', '-hide_banner', '-v', 'error']
/** A codec that every ffmpeg has. */
const CODEC = ['-c:v', 'mpeg4', '-pix_fmt', 'yuv420p']

/** @public Loaded by its path, as WORKER_HANDLERS. */
export default {
  async clip(context) {
    const { seconds } = orderOf(context)
    const file = join(context.scratchDir, 'clip.mp4')
    // -re: as fast as it would be watched, so that six at once are no burden and take as long everywhere.
    const picture = ['-re', '-f', 'lavfi', '-i', `testsrc2=size=320x180:rate=10:duration=${seconds}`]
    await context.run([...QUIET, '-progress', 'pipe:1', '-y', ...picture, ...CODEC, file], {
      durationMs: seconds * 1000,
      onProgress: (pct) => context.progress(pct),
    })
    const validate = async (made: string): Promise<void> => {
      await context.run([...QUIET, '-xerror', '-i', made, '-f', 'null', '-'])
    }
    await context.publish(file, { name: 'clip.mp4', validate })
  },

  async simulated(context) {
    const { clip, seconds } = orderOf(context)
    for (let step = 1; step <= 20; step += 1) {
      await sleep(seconds * 50, undefined, { signal: context.signal })
      await context.progress(step * 5)
    }
    const file = join(context.scratchDir, 'clip.mp4')
    await writeFile(file, `This would be clip ${clip}.\n`)
    await context.publish(file, { name: 'clip.mp4' })
  },
} satisfies Handlers

function orderOf({ job }: HandlerContext): ClipOrder {
  return job.payload as ClipOrder
}

/** Handlers for tests that need no ffmpeg: the job's payload says what happens. Every start is written down in a file. */
import { appendFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { type HandlerContext, JobError, type Handlers } from '../../../src/index.ts'

interface Payload {
  ms?: number
  blockMs?: number
  /** Crash the whole process on each of the first n attempts. */
  crashes?: number
  never?: boolean
  fail?: 'transient' | 'permanent' | 'undefined'
  publish?: string
  /** On the first attempt, an error that belongs to nobody: thrown later, or rejected and not awaited. */
  stray?: 'throw' | 'reject'
  progress?: number[]
  exitAfterPublish?: boolean
  /** On the first attempt, leave the whole process with this code. */
  exit?: number
  /** Start a program and do not wait for it when another one fails. */
  careless?: boolean
}

async function handle({
  job,
  lease,
  signal,
  progress,
  event,
  scratchDir,
  publish,
  run,
}: HandlerContext): Promise<void> {
  const payload = job.payload as Payload
  note(`start ${lease.id} ${lease.attempt}`)
  signal.addEventListener('abort', () => note(`abort ${lease.id} ${lease.attempt} ${(signal.reason as JobError).code}`))
  await event('source:ready', { from: 'test' })
  if ((payload.crashes ?? 0) >= lease.attempt) process.exit(7)
  if (payload.stray === 'throw' && lease.attempt === 1)
    setTimeout(() => {
      throw new Error('stray')
    }, 10)
  if (payload.stray === 'reject' && lease.attempt === 1) void Promise.reject(new Error('stray'))
  if (payload.exit !== undefined && lease.attempt === 1) process.exit(payload.exit)
  if (payload.careless) {
    const forgotten = run(['sleep', '30'])
    await run(['false'])
    await forgotten
  }
  if (payload.blockMs) {
    for (const until = performance.now() + payload.blockMs; performance.now() < until;);
  }
  for (const pct of payload.progress ?? []) await progress(pct)
  if (payload.never) await new Promise(() => undefined)
  if (payload.fail === 'transient') throw new JobError('NETWORK', 'the line went dead')
  if (payload.fail === 'permanent') throw new JobError('VALIDATION', 'no such codec', { permanent: true })
  if (payload.fail === 'undefined') throw undefined
  if (payload.ms) await sleep(payload.ms, undefined, { signal })
  if (payload.publish) {
    const file = join(scratchDir, 'out.mp4')
    await writeFile(file, payload.publish)
    await publish(file)
    if (payload.exitAfterPublish && lease.attempt === 1) process.exit(9)
  }
  note(`end ${lease.id} ${lease.attempt}`)
}

function note(line: string): void {
  if (process.env.TEST_NOTES) appendFileSync(process.env.TEST_NOTES, `${line}\n`)
}

export default { default: handle } satisfies Handlers

/** A process that publishes one artifact after another until it is killed. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'

import { createLocalStorage } from '../../src/storage/local.ts'
import { artifactKey } from '../../src/storage/storage.ts'
import { publishArtifact } from '../../src/worker/artifact.ts'

export interface PublisherOptions {
  root: string
  file: string
  /** Jobs are called `<name>-0`, `<name>-1` and so on. */
  name: string
  count?: number
}

/** Answers once it has begun. */
export async function startPublisher(options: PublisherOptions, through: string[] = []): Promise<ChildProcess> {
  const [command, ...args] = [...through, process.execPath, import.meta.path, JSON.stringify(options)]
  const child = spawn(command ?? '', args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  return child
}

async function publishUntilKilled({ root, file, name, count = 10_000 }: PublisherOptions): Promise<void> {
  const storage = createLocalStorage({ root })
  process.stdout.write('begun\n')
  for (let n = 0; n < count; n += 1) {
    const jobId = `${name}-${n}`
    const key = artifactKey(jobId, 'clip.mp4')
    await publishArtifact({ storage, key, file, table: 'jobs', jobId, attempt: 1, confirm: () => Promise.resolve() })
  }
}

if (import.meta.main) await publishUntilKilled(JSON.parse(process.argv[2] ?? '{}') as PublisherOptions)

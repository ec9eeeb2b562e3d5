/** One PostgreSQL for the whole run: the one `bun run test` started, or our own when `bun test` is called directly. */
import { mkdtempSync, rmSync } from 'node:fs'
import { join } from 'node:path'

import { startTestServer } from './server.ts'

if (!process.env.TEST_SERVER_URL) {
  const dataDir = mkdtempSync(join('/tmp', 'leasehold-test-'))
  const server = await startTestServer(dataDir)
  process.env.TEST_SERVER_URL = server.url
  process.on('exit', () => {
    process.kill(server.pid, 'SIGKILL')
    rmSync(dataDir, { recursive: true, force: true })
  })
}

/** bun run test: one PostgreSQL for the whole run, all tests, and one plain line at the end. */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'

import { startTestServer } from '../test/support/server.ts'

/** Most of the time is spent waiting for leases to run out; more at once, and tests would take each other's time. */
const PROCESSES = Math.min(3, availableParallelism())

const folder = mkdtempSync(join(tmpdir(), 'leasehold-test-'))
const report = join(folder, 'junit.xml')
const server = await startTestServer(folder)
const options = ['--timeout=60000', `--parallel=${PROCESSES}`, '--reporter=junit', `--reporter-outfile=${report}`]
const args = ['test', ...options, ...process.argv.slice(2)]
const run = spawnSync(process.execPath, args, {
  stdio: 'inherit',
  env: { ...process.env, TEST_SERVER_URL: server.url },
})
await server.stop()

const [tests = 0, failures = 0, skipped = 0] = readTotals(report)
rmSync(folder, { recursive: true, force: true })
// A run that broke off before its report (a crash, a syntax error) is a failure too.
const failed = failures > 0 || run.status === 0 ? failures : Math.max(1, failures)
process.stdout.write(
  `\n${tests - failures - skipped} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`,
)
process.exit(failed > 0 || tests === 0 ? 1 : 0)

function readTotals(file: string): number[] {
  try {
    const head = /<testsuites [^>]*>/.exec(readFileSync(file, 'utf8'))?.[0] ?? ''
    return ['tests', 'failures', 'skipped'].map((name) => Number(new RegExp(`${name}="(\\d+)"`).exec(head)?.[1] ?? 0))
  } catch {
    return []
  }
}

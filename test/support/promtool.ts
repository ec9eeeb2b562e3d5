/** Prometheus' own judge of rules, expressions and metrics, where there is one. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

import { ROOT } from './program.ts'

export const PROMTOOL = Bun.which('promtool')
if (!PROMTOOL) console.warn('skipped: promtool is not on this machine (Debian: apt-get install prometheus)')

/** CI has one; there its absence is a failure, not a skip. */
export const isPromtoolExpected = PROMTOOL !== null || process.env.CI === 'true'

/** Run in the folder of the rules. */
export function promtool(args: string[], input = ''): { status: number | null; output: string } {
  const cwd = join(ROOT, 'docs', 'deploy', 'prometheus')
  const { status, stdout, stderr } = spawnSync(PROMTOOL ?? 'promtool', args, { cwd, input, encoding: 'utf8' })
  return { status, output: stdout + stderr }
}

/** Looks at processes by their number, and keeps what a runner logs. */
import { readFileSync } from 'node:fs'

import type { Log } from '../../src/telemetry/log.ts'

/** A zombie is dead; it only waits to be collected. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return process.platform !== 'linux' || !/^\d+ \(.*\) [ZX]/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

export interface LogLine {
  level: string
  msg: string
  pid?: number
}

/** A log that remembers: its `child started` lines say the process number of each child. */
export function recordingLog(): { log: Log; lines: LogLine[] } {
  const lines: LogLine[] = []
  const note =
    (level: string) =>
    (fields: unknown, msg = ''): void => {
      lines.push({ level, msg, ...(fields as object) })
    }
  const log: Log = { debug: note('debug'), info: note('info'), warn: note('warn'), error: note('error') }
  return { log, lines }
}

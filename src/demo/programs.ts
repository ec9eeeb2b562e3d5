/** Finds the ffmpeg that works on a job and ends it from outside, as the kernel does when memory runs out. */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'

/** False when there is none, or none any more. */
export function killProgramOf(jobId: string): boolean {
  return pidsOf(jobId).map(kill).includes(true)
}

/** The job's number stands in the path of the file it writes. */
function pidsOf(jobId: string): number[] {
  if (process.platform !== 'linux') {
    const found = spawnSync('pgrep', ['-f', jobId], { encoding: 'utf8' })
    return found.stdout.split('\n').filter(Boolean).map(Number)
  }
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name))
  return pids.filter((pid) => commandOf(pid).includes(jobId)).map(Number)
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch {
    return ''
  }
}

function kill(pid: number): boolean {
  try {
    return process.kill(pid, 'SIGKILL')
  } catch {
    return false
  }
}

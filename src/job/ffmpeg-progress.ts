/** Reads how far ffmpeg is from the lines of its `-progress` report. */

/** Answers the percentage when a line raises it, else null. `progress=end` says nothing: ffmpeg prints it when it is stopped, too. */
export function createFfmpegProgress(durationMs: number): (line: string) => number | null {
  let highest = -1
  let hasMicroseconds = false
  return (line) => {
    const [, key, value] = /^(out_time_us|out_time_ms)=\s*(-?\d+)\s*$/.exec(line) ?? []
    if (key === undefined || !(durationMs > 0)) return null
    // out_time_ms is in microseconds as well, and the only one of the two in old versions.
    if (key === 'out_time_us') hasMicroseconds = true
    else if (hasMicroseconds) return null
    const pct = percentage(Number(value) / 1000, durationMs)
    if (pct <= highest) return null
    highest = pct
    return pct
  }
}

/** One decimal, rounded down, so that 100 means all of it. Before the first frame ffmpeg may report a negative time. */
function percentage(doneMs: number, durationMs: number): number {
  return Math.floor(Math.min(Math.max(doneMs / durationMs, 0), 1) * 1000) / 10
}

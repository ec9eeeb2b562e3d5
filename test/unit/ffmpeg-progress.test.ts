/** How ffmpeg's progress lines become a percentage. */
import { describe, expect, test } from 'bun:test'

import { createFfmpegProgress } from '../../src/job/ffmpeg-progress.ts'

describe('ffmpeg progress', () => {
  test.each([
    ['out_time_us=0', 0],
    ['out_time_us=500000', 25],
    ['out_time_us= 500000 ', 25],
    ['out_time_us=1999999', 99.9],
    ['out_time_us=2000000', 100],
    ['out_time_us=9000000', 100],
    ['out_time_us=-577014', 0],
    ['out_time_us=N/A', null],
    // In microseconds, whatever its name says.
    ['out_time_ms=500000', 25],
    ['out_time=00:00:01.000000', null],
    ['frame=50', null],
    ['progress=continue', null],
    ['progress=end', null],
    ['', null],
  ])('of two seconds, %p is %p', (line, pct) => {
    expect(createFfmpegProgress(2000)(line)).toBe(pct)
  })

  test('tells each percentage once and never falls', () => {
    const read = createFfmpegProgress(1000)
    const lines = ['out_time_us=100000', 'out_time_us=100000', 'out_time_us=50000', 'out_time_us=100500']
    expect(lines.map(read)).toEqual([10, null, null, null])
    expect(read('out_time_us=200000')).toBe(20)
  })

  test('reads out_time_ms only where there is no out_time_us', () => {
    const read = createFfmpegProgress(1000)
    expect(read('out_time_us=100000')).toBe(10)
    expect(read('out_time_ms=900000')).toBeNull()
  })

  test.each([0, -1, Number.NaN])('without a length (%p ms) there is no percentage', (durationMs) => {
    expect(createFfmpegProgress(durationMs)('out_time_us=500000')).toBeNull()
  })
})

/** The rules with numbers: backoff, stage leases, run deadlines, failure classes, waking. */
import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'

import { backoffAfter, backoffLadder, DEFAULT_BACKOFF_LADDER_MS } from '../../src/job/backoff.ts'
import { classifyFailure, cleanText } from '../../src/job/failure.ts'
import { isMassExpiry, nextWakeSec } from '../../src/job/recovery.ts'
import {
  clampLeaseSec,
  DEFAULT_SLA_FACTORS,
  leaseSecFor,
  runDeadlineSec,
  shortestLeaseSec,
  stagePolicy,
} from '../../src/job/stage.ts'

const policy = stagePolicy({
  heartbeatSec: 10,
  factors: DEFAULT_SLA_FACTORS,
  defaultLeaseSec: 300,
  maxRuntimeSec: 21_600,
})

describe('backoff', () => {
  test.each([
    [1, 30_000],
    [2, 120_000],
    [3, 600_000],
    [40, 600_000],
    [2_000_000_000, 600_000],
    [0, 30_000],
    [Number.NaN, 30_000],
  ])('after attempt %p the default pause is %p ms', (attempt, pause) => {
    expect(backoffAfter(attempt, DEFAULT_BACKOFF_LADDER_MS)).toBe(pause)
  })

  test('doubles from base to max and stops there', () => {
    expect(backoffLadder(1000, 4000)).toEqual([1000, 2000, 4000])
    expect(backoffLadder(1000, 5000)).toEqual([1000, 2000, 4000, 5000])
    expect(backoffLadder(7, 7)).toEqual([7])
  })

  test('for any settings and attempt it is finite, within base and max, and never falls', () => {
    const settings = fc.tuple(
      fc.integer({ min: 1, max: 1e9 }),
      fc.integer({ min: 1, max: 1e9 }),
      fc.integer({ min: 1, max: 2e9 }),
    )
    fc.assert(
      fc.property(settings, ([a, b, attempt]) => {
        const [base, max] = [Math.min(a, b), Math.min(Math.max(a, b), 7 * 24 * 3600 * 1000)]
        const ladder = backoffLadder(base, Math.max(a, b))
        const pause = backoffAfter(attempt, ladder)
        return (
          pause >= Math.min(base, max) &&
          pause <= max &&
          backoffAfter(attempt + 1, ladder) >= pause &&
          ladder.length < 64
        )
      }),
    )
  })
})

describe('stage leases', () => {
  test.each([
    ['clip', 60],
    ['asr', 120],
    ['burnin', 80],
    ['Clip', 300],
    ['unknown', 300],
    ['__proto__', 300],
    ['constructor', 300],
    [null, 300],
  ])('%p gets %p s', (stage, leaseSec) => {
    expect(leaseSecFor(stage, policy)).toBe(leaseSec)
  })

  test('a lease is at least three heartbeats, however small the factor', () => {
    const small = stagePolicy({ heartbeatSec: 10, factors: { clip: 1 }, defaultLeaseSec: 300, maxRuntimeSec: 0 })
    expect(leaseSecFor('clip', small)).toBe(30)
    expect(shortestLeaseSec(small)).toBe(30)
  })

  test.each([
    [1e18, 86_400],
    [Infinity, 86_400],
    [-1, 0.1],
    [Number.NaN, 1],
  ])('a length of %p becomes %p s', (asked, granted) => {
    expect(clampLeaseSec(asked)).toBe(granted)
  })
})

describe('run deadline', () => {
  test.each([
    [{ stage: 'clip', expectedDurationMs: 120_000 }, 720],
    [{ stage: 'clip', expectedDurationMs: 1000 }, 300],
    [{ stage: 'nobody knows', expectedDurationMs: 120_000 }, 1440],
    [{ stage: 'clip', expectedDurationMs: null }, 21_600],
    [{ stage: 'clip', expectedDurationMs: 0 }, 21_600],
    [{ stage: null, expectedDurationMs: -5 }, 21_600],
    [{ stage: 'asr', expectedDurationMs: 2_147_483_647 }, 25_769_803.764],
  ])('%p may run %p s', (job, sec) => {
    expect(runDeadlineSec(job, policy)).toBeCloseTo(sec, 3)
  })

  test('there is none when JOB_MAX_RUNTIME_SEC is 0 and nothing is expected', () => {
    expect(runDeadlineSec({ stage: 'clip', expectedDurationMs: null }, { ...policy, maxRuntimeSec: 0 })).toBeNull()
  })
})

describe('failures', () => {
  test.each([
    [{ code: 'VALIDATION' }, true],
    [{ code: 'INPUT_TOO_LARGE' }, true],
    [{ code: 'NETWORK' }, false],
    [{ code: 'VALIDATION', permanent: false }, false],
    [{ code: 'OWN', permanent: true }, true],
    [{}, false],
    [undefined, false],
  ])('%p is permanent: %p', (details, permanent) => {
    expect(classifyFailure(details).permanent).toBe(permanent)
  })

  test('a failure without words still has a code and a reason', () => {
    expect(classifyFailure({ code: '  ', reason: '\0' })).toEqual({
      code: 'UNKNOWN',
      reason: 'UNKNOWN',
      permanent: false,
    })
  })

  test('any text becomes storable: no NUL, no lone surrogate, bounded', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (text) => {
        const clean = cleanText(text, 100)
        return clean.length <= 100 && !clean.includes('\0') && clean.isWellFormed()
      }),
    )
    expect(
      cleanText(
        {
          toString: () => {
            throw new Error('no')
          },
        },
        100,
      ),
    ).toBe('unprintable value')
  })
})

describe('waking', () => {
  const quiet = {
    nearestDeadlineSec: null,
    shortestLeaseSec: 60,
    intervalSec: 60,
    heartbeatSec: 10,
    hasLeftovers: false,
  }
  test.each([
    ['nothing is held', quiet, 60],
    ['the interval is shorter than any lease', { ...quiet, intervalSec: 5 }, 5],
    ['the shortest lease is shorter than the interval', { ...quiet, shortestLeaseSec: 3 }, 3],
    ['a lease ends before all that', { ...quiet, nearestDeadlineSec: 2 }, 2.02],
    ['one heartbeat before a lease ends it looks once more', { ...quiet, nearestDeadlineSec: 35 }, 25],
    ['a lease ends this instant: never a busy loop', { ...quiet, nearestDeadlineSec: 0 }, 0.2],
    ['something due is locked by somebody else', { ...quiet, hasLeftovers: true }, 1],
  ])('%s', (_, input, sec) => {
    expect(nextWakeSec(input)).toBeCloseTo(sec, 6)
  })

  test.each([
    [6, 10, true],
    [5, 10, false],
    [9, 9, false],
    [1, 0, false],
  ])('%p expired of %p held is a mass expiry: %p', (expired, held, isMass) => {
    expect(isMassExpiry(expired, held)).toBe(isMass)
  })
})

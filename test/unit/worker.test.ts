/** The runtime's rules: which progress is worth telling, what a thrown value means, when claiming pauses. */
import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'

import { classifyError } from '../../src/job/failure.ts'
import { createProgressGate } from '../../src/job/progress.ts'
import { JobError } from '../../src/worker/handler.ts'
import { isUnderPressure } from '../../src/worker/pressure.ts'
import { describeEnd } from '../../src/worker/supervisor.ts'

describe('progress', () => {
  const told = (reports: [number, number][]): (number | null)[] => {
    const gate = createProgressGate(0)
    return reports.map(([pct, atMs]) => gate.report(pct, atMs))
  }

  test.each<[string, [number, number][], (number | null)[]]>([
    ['the first report is told', [[0, 0]], [0]],
    [
      'less than one percent within half a second is not',
      [
        [1, 0],
        [1.5, 100],
      ],
      [1, null],
    ],
    [
      'one percent more is',
      [
        [1, 0],
        [2, 100],
      ],
      [1, 2],
    ],
    [
      'so is anything after half a second',
      [
        [1, 0],
        [1.1, 500],
      ],
      [1, 1.1],
    ],
    [
      'it never goes backwards',
      [
        [50, 0],
        [10, 600],
      ],
      [50, 50],
    ],
    [
      'it is clamped',
      [
        [-5, 0],
        [150, 600],
      ],
      [0, 100],
    ],
    [
      'nonsense moves nothing',
      [
        [10, 0],
        [Number.NaN, 600],
        [-Infinity, 1200],
      ],
      [10, 10, 10],
    ],
    [
      'the final hundred is told at once, and once',
      [
        [99.5, 0],
        [100, 1],
        [100, 5000],
      ],
      [99.5, 100, null],
    ],
  ])('%s', (_, reports, expected) => {
    expect(told(reports)).toEqual(expected)
  })

  test('whatever is reported, what is told stays within 0 and 100 and never falls', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.double(), fc.nat(400))), (reports) => {
        const gate = createProgressGate(0)
        let clock = 0
        const values = reports.map(([pct, ms]) => gate.report(pct, (clock += ms))).filter((each) => each !== null)
        return values.every((value, n) => value >= 0 && value <= 100 && value >= (values[n - 1] ?? 0))
      }),
    )
  })
})

describe('what a thrown value means', () => {
  const trap = new Proxy(
    {},
    {
      get: () => {
        throw new Error('trap')
      },
    },
  )
  test.each<[unknown, string, boolean]>([
    [new JobError('VALIDATION', 'x'), 'VALIDATION', true],
    [new JobError('OWN_CODE', 'x', { permanent: true }), 'OWN_CODE', true],
    [new JobError('OWN_CODE', 'x'), 'OWN_CODE', false],
    [Object.assign(new Error('x'), { code: 'INPUT_TOO_LARGE' }), 'INPUT_TOO_LARGE', true],
    [Object.assign(new Error('x'), { code: 'ECONNRESET' }), 'NETWORK', false],
    [Object.assign(new Error('x'), { code: 'ENOSPC' }), 'STORAGE', false],
    [new DOMException('too slow', 'TimeoutError'), 'TIMEOUT', false],
    [new Error('plain'), 'UNKNOWN', false],
    [undefined, 'UNKNOWN', false],
    [null, 'UNKNOWN', false],
    ['a string', 'UNKNOWN', false],
    [
      {
        code: { toString: () => 'EVIL' },
        get message(): string {
          throw new Error('no')
        },
      },
      'EVIL',
      false,
    ],
    [trap, 'UNKNOWN', false],
    [{ code: '__proto__' }, 'UNKNOWN', false],
  ])('%#', (thrown, code, permanent) => {
    expect(classifyError(thrown)).toMatchObject({ code, permanent })
  })
})

test.each([
  [101, 0.95, true],
  [101, 0.5, false],
  [100, 0.95, false],
  [0, 5, false],
])('%p due jobs at load %p: pause is %p', (dueJobs, loadPerCore, pauses) => {
  expect(isUnderPressure({ dueJobs, loadPerCore }, { highWatermark: 100, loadThreshold: 0.9 })).toBe(pauses)
})

test.each<[number | null, NodeJS.Signals | null, boolean, string]>([
  [7, null, false, 'exit code 7'],
  [null, 'SIGSEGV', false, 'killed by SIGSEGV'],
  [null, 'SIGKILL', false, 'killed by SIGKILL'],
  [null, 'SIGKILL', true, 'out of memory (SIGKILL)'],
])('an end with code %p and signal %p (out of memory: %p) is told as "%s"', (code, signal, oom, cause) => {
  expect(describeEnd(code, signal, oom)).toBe(cause)
})

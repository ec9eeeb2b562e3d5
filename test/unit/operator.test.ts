/** What an operator is told: pure words and numbers, from rows and events. */
import { describe, expect, test } from 'bun:test'

import type { JobView } from '../../src/db/job-view.ts'
import { DEFAULT_EVENT_NAMES as NAMES } from '../../src/job/event.ts'
import { attemptsOf } from '../../src/operator/attempts.ts'
import { drainPlan } from '../../src/operator/drain.ts'
import { explain, type ExplainSettings } from '../../src/operator/explain.ts'
import { healthOf, type TableState } from '../../src/operator/health.ts'
import type { ToldEvent } from '../../src/db/timeline.ts'
import { createHistory } from '../../src/operator/history.ts'
import { withoutProgressRuns } from '../../src/operator/progress-runs.ts'

const NOW = new Date('2026-11-18T12:03:14Z')
const inSec = (sec: number): Date => new Date(NOW.getTime() + sec * 1000)

const JOB: JobView = {
  table: 'jobs',
  id: '4711',
  status: 'processing',
  word: 'processing',
  stage: 'clip',
  holder: 'host-4711-k3f9',
  attempt: 2,
  maxAttempts: 3,
  progress: null,
  expectedDurationMs: null,
  now: NOW,
  leaseUntil: inSec(56),
  isLeaseOdd: false,
  heartbeatAt: inSec(-4),
  startedAt: inSec(-30),
  dueAt: inSec(-40),
  changedAt: null,
  isDue: true,
  failCode: null,
  failReason: null,
  endsAt: inSec(56),
  rule: 'lease_expired',
  outcome: 'requeued',
  attemptThen: 2,
  isSpared: false,
}
const SETTINGS: ExplainSettings = {
  onExpiry: 'requeue',
  backoffLadderMs: [30_000, 120_000, 600_000],
  canRaiseAttempts: true,
  hasDueTime: true,
  canBeGivenTime: true,
  failsUnlessTakenSec: null,
}
const QUEUED: Partial<JobView> = { status: 'queued', holder: null, attempt: 1, endsAt: null, rule: null, outcome: null }
const FAILED: Partial<JobView> = { ...QUEUED, status: 'failed', attempt: 3 }

describe('explain', () => {
  test('says who holds a job, which rule decides, and when it runs again', () => {
    const { now, next, advice, actions } = explain(JOB, SETTINGS)
    expect(now).toBe('held by host-4711-k3f9, attempt 2 of 3, last heartbeat 4 s ago, lease ends in 56 s')
    expect(next).toBe(
      'if nothing happens it is requeued at 12:04:10 UTC (lease_expired: the lease has run out) and runs again at 12:06:10 UTC or a little later',
    )
    expect([advice, actions]).toEqual([null, ['end-lease', 'cancel']])
  })

  test.each<[string, Partial<JobView>, Partial<ExplainSettings>, RegExp]>([
    [
      'its lease is over',
      { endsAt: inSec(-3), leaseUntil: inSec(-3) },
      {},
      /requeued at the next pass.*again at 12:05:14/,
    ],
    ['no attempt is left', { outcome: 'failed', attempt: 3 }, {}, /it fails at 12:04:10 UTC .*no attempt is left/],
    ['its table never requeues', { outcome: 'failed' }, { onExpiry: 'fail' }, /this table never requeues/],
    ['it ends on another day', { endsAt: inSec(86_400) }, {}, /at 2026-11-19 12:03:14 UTC/],
    ['its table has no due time', {}, { hasDueTime: false }, /and may run again at once$/],
    ['the database was away', { isSpared: true }, {}, /the database was away, so its holder still gets the chance/],
    ['nothing tells its age', { endsAt: null, rule: null }, {}, /the reaper gives it time at its next pass/],
    ['nothing can take its age', { endsAt: null, rule: null }, { canBeGivenTime: false }, /^nothing: /],
    ['it has had many attempts', { attemptThen: 2_000_000_000 }, {}, /again at 12:14:10/],
    ['its worker does not count', { attempt: 0, attemptThen: 1 }, {}, /again at 12:04:40/],
  ])('what comes next when %s', (_, job, settings, words) => {
    expect(explain({ ...JOB, ...job }, { ...SETTINGS, ...settings }).next).toMatch(words)
  })

  test.each<[string, Partial<JobView>, string]>([
    ['nobody known', { holder: null }, 'running, held by nobody known, attempt'],
    ['no heartbeat', { heartbeatAt: null }, ', no heartbeat, '],
    ['a heartbeat of an earlier run', { rule: 'no_heartbeat' }, 'last heartbeat 4 s ago, before this run'],
    ['a heartbeat of the future', { heartbeatAt: inSec(4000) }, 'a heartbeat of the future, which is not believed'],
    ['no lease', { leaseUntil: null, rule: 'heartbeat_stale' }, ', no lease'],
    ['a lease without end', { leaseUntil: null, isLeaseOdd: true }, 'a lease too far off to be believed'],
    ['a lease before all time', { leaseUntil: null }, 'a lease that ended before all time'],
    ['a lease that is over', { leaseUntil: inSec(-125) }, 'lease ended 2 min 5 s ago'],
  ])('how a job with %s is', (_, job, words) => {
    expect(explain({ ...JOB, ...job }, SETTINGS).now).toContain(words)
  })

  test('asks for the reaper only when a job is late by more than a moment', () => {
    const adviceWhenLateBy = (sec: number): string | null => explain({ ...JOB, endsAt: inSec(-sec) }, SETTINGS).advice
    expect(adviceWhenLateBy(15)).toBeNull()
    expect(adviceWhenLateBy(90)).toBe('its time was up 1 min 30 s ago: is a reaper running?')
  })

  test.each<[string, Partial<JobView>, Partial<ExplainSettings>, string, RegExp, string[]]>([
    [
      'due',
      {},
      {},
      'queued, due 40 s ago, 1 of 3 attempts used',
      /^the next free worker for its stage takes it$/,
      ['cancel'],
    ],
    [
      'due, in a table that gives up',
      {},
      { failsUnlessTakenSec: 300 },
      'queued, due 40 s ago, 1 of 3',
      /; if none does by 12:07:34 UTC, it fails/,
      ['cancel'],
    ],
    [
      'overdue, in a table that gives up',
      {},
      { failsUnlessTakenSec: 30 },
      'queued, due 40 s',
      /before the next pass of the reaper, it fails/,
      ['cancel'],
    ],
    [
      'waiting',
      { isDue: false, dueAt: inSec(90), failCode: 'DISK' },
      {},
      'queued, 1 of 3 attempts used; the last attempt ended with DISK',
      /^it may run at 12:04:44 UTC, in 1 min 30 s$/,
      ['retry', 'cancel'],
    ],
    ['waiting for ever', { isDue: false, dueAt: null }, {}, 'queued, 1 of 3', /waits for ever/, ['retry', 'cancel']],
    [
      'without an attempt left',
      { attempt: 3 },
      {},
      'queued, but 3 of 3 attempts are used',
      /no claim takes it/,
      ['retry', 'cancel'],
    ],
    [
      'without an attempt left or a column',
      { attempt: 3 },
      { canRaiseAttempts: false },
      'queued, but 3 of 3',
      /no claim/,
      ['cancel'],
    ],
  ])('a queued job that is %s', (_, job, settings, now, next, actions) => {
    const told = explain({ ...JOB, ...QUEUED, ...job }, { ...SETTINGS, ...settings })
    expect(told.now).toStartWith(now)
    expect(told.next).toMatch(next)
    expect(told.actions).toEqual(actions as never)
  })

  test.each<[Partial<JobView>, Partial<ExplainSettings>, string, string[]]>([
    [{ failCode: 'DISK', failReason: 'no space' }, {}, 'failed: DISK (no space), after attempt 3 of 3', ['retry']],
    [{ failCode: 'DISK', failReason: 'DISK' }, {}, 'failed: DISK, after', ['retry']],
    [{ failReason: 'no space' }, {}, 'failed: no space, after', ['retry']],
    [{}, {}, 'failed: nothing says why, after', ['retry']],
    [{}, { canRaiseAttempts: false }, 'failed: ', []],
    [{ attempt: 1 }, { canRaiseAttempts: false }, 'failed: ', ['retry']],
  ])('a failed job with %j and %j', (job, settings, now, actions) => {
    const told = explain({ ...JOB, ...FAILED, ...job }, { ...SETTINGS, ...settings })
    expect(told.now).toStartWith(now)
    expect(told.actions).toEqual(actions as never)
  })

  test('a job that is done stays done, and an unknown word is shown', () => {
    expect(explain({ ...JOB, status: 'done' }, SETTINGS)).toMatchObject({ now: 'done, at attempt 2', actions: [] })
    expect(explain({ ...JOB, status: null, word: 'paused' }, SETTINGS)).toMatchObject({ actions: [] })
  })
})

describe('health', () => {
  const WELL: TableState = {
    table: 'jobs',
    obstacle: null,
    queued: 5,
    due: 3,
    processing: 2,
    expired: 0,
    overdueSec: null,
    spared: 0,
    failed: 7,
    undispatched: 0,
    exhausted: 0,
    oldestDueSec: null,
    isReadOnly: false,
  }

  test('all is well, over all tables', () => {
    expect(healthOf([WELL, { ...WELL, table: 'asr_jobs' }])).toEqual({
      level: 'ok',
      sentence: 'Nothing is stuck: 4 running, 6 due, 4 for later; 14 failed.',
      details: [],
    })
    expect(healthOf([{ ...WELL, queued: 3, failed: 0 }]).sentence).toBe('Nothing is stuck: 2 running, 3 due.')
  })

  test.each<[Partial<TableState>, string, string]>([
    [{ expired: 1, overdueSec: 3 }, 'attention', 'jobs: 1 running job just ran out of time'],
    [
      { expired: 1, overdueSec: 20 },
      'unhealthy',
      'jobs: 1 running job past its deadline, the first for 20 s, and nobody takes it back. Is a reaper running?',
    ],
    [
      { expired: 2, overdueSec: 90 },
      'unhealthy',
      'jobs: 2 running jobs past their deadline, the first for 1 min 30 s, and nobody takes them back. Is a reaper running?',
    ],
    [
      { expired: 2, overdueSec: null },
      'unhealthy',
      'jobs: 2 running jobs past their deadline, and nobody takes them back. Is a reaper running?',
    ],
    [
      { undispatched: 1, oldestDueSec: 400 },
      'attention',
      'jobs: 1 due job nobody takes, the oldest for 6 min 40 s. Is a worker running for its stage?',
    ],
    [
      { undispatched: 2, oldestDueSec: 400, processing: 0 },
      'unhealthy',
      'jobs: 2 due jobs nobody takes, the oldest for 6 min 40 s. Is a worker running for their stages?',
    ],
    [
      { undispatched: 100_000, oldestDueSec: 400 },
      'attention',
      'jobs: 100000 or more due jobs nobody takes, the oldest for 6 min 40 s. Is a worker running for their stages?',
    ],
    [
      { exhausted: 1 },
      'unhealthy',
      'jobs: 1 queued job without an attempt left, which no claim takes. Retry it, or cancel.',
    ],
    [{ spared: 2 }, 'attention', 'jobs: the database was away; 2 jobs still have time to check in'],
    [
      { isReadOnly: true },
      'unhealthy',
      'jobs: the database is read-only, so nothing can be claimed, finished or reaped. Is this a standby?',
    ],
    [{ obstacle: 'jobs: refused' }, 'unhealthy', 'jobs: refused'],
  ])('%j', (state, level, sentence) => {
    expect(healthOf([{ ...WELL, ...state }])).toMatchObject({ level, sentence, details: [{ level, text: sentence }] })
  })

  test('the worst comes first, whichever table it is in', () => {
    const { sentence, details } = healthOf([
      { ...WELL, spared: 2 },
      { ...WELL, table: 'asr_jobs', expired: 1, overdueSec: 60 },
    ])
    expect(sentence).toStartWith('asr_jobs: 1 running job past its deadline')
    expect(details.map(({ level }) => level)).toEqual(['unhealthy', 'attention'])
  })
})

describe('drain', () => {
  const plan = (jobs: Partial<JobView>[], sec = 25): ReturnType<typeof drainPlan> =>
    drainPlan(
      jobs.map((job) => ({ ...JOB, startedAt: inSec(-60), ...job })),
      sec,
    )

  test.each<[string, Partial<JobView>, number | null, string]>([
    ['its progress tells', { progress: 80 }, 15, 'finishes'],
    ['its progress tells that it takes longer', { progress: 50 }, 60, 'given back'],
    ['progress is over expectation', { progress: 80, expectedDurationMs: 9_000_000 }, 15, 'finishes'],
    ['only its expectation tells', { expectedDurationMs: 70_000 }, 10, 'finishes'],
    ['its expectation is over', { expectedDurationMs: 50_000 }, null, 'unknown'],
    ['its expectation is none', { expectedDurationMs: -1 }, null, 'unknown'],
    ['nothing tells', {}, null, 'unknown'],
    ['it has not moved yet', { progress: 0 }, null, 'unknown'],
    ['it is all but done', { progress: 100 }, 0, 'finishes'],
    ['its start is not known', { startedAt: null, progress: 80 }, null, 'unknown'],
    ['it starts in the future', { startedAt: inSec(60), progress: 80 }, null, 'unknown'],
  ])('a job of which %s', (_, job, remainingSec, outcome) => {
    expect(plan([job]).jobs).toMatchObject([{ remainingSec, outcome }])
  })

  test('counts, sums what is lost, and puts the longest first', () => {
    const { jobs, ...sums } = plan([
      { id: 'a', progress: 80 },
      { id: 'b', progress: 50 },
      { id: 'c' },
      { id: 'd', progress: 10 },
    ])
    expect(jobs.map(({ id }) => id)).toEqual(['c', 'd', 'b', 'a'])
    expect(sums).toEqual({ shutdownTimeoutSec: 25, finishes: 1, givenBack: 2, unknown: 1, lostSec: 180, isCut: false })
  })

  test('a job whose time is up is run by nobody any more', () => {
    expect(plan([{ endsAt: inSec(-1) }, { endsAt: null, id: 'ageless' }]).jobs.map(({ id }) => id)).toEqual(['ageless'])
  })
})

describe('attempts', () => {
  const told = (type: string, sec: number, details: Record<string, unknown>) => ({
    at: inSec(sec).toISOString(),
    type,
    details,
  })

  test('each has its holder, how long it took and how it ended', () => {
    const attempts = attemptsOf(
      [
        told(NAMES.created, 0, {}),
        told(NAMES.processing, 1, { attempt: 1, holder: 'a' }),
        told(NAMES.progress, 2, { attempt: 1, holder: 'a' }),
        told(NAMES.reaperRequeued, 61, { attempt: 1, reason: 'lease_expired' }),
        told(NAMES.requeuedStale, 61, { attempt: 1, reason: 'lease_expired' }),
        told(NAMES.processing, 91, { attempt: 2, holder: 'b' }),
        told(NAMES.operatorEndedLease, 95, { attempt: 2, reason: 'lease_ended', cause: 'it hangs', actor: 'Ana' }),
        told(NAMES.processing, 215, { attempt: 3, holder: 'c' }),
        told(NAMES.failed, 216, { attempt: 3, code: 'DISK', reason: 'no space' }),
        told(NAMES.operatorRetry, 300, { attempt: 3 }),
        told(NAMES.processing, 301, { attempt: 4, holder: 'd' }),
      ],
      NAMES,
    )
    expect(attempts).toMatchObject([
      { attempt: 1, holder: 'a', durationSec: 60, end: NAMES.reaperRequeued, reason: 'lease_expired' },
      { attempt: 2, holder: 'b', durationSec: 4, end: NAMES.operatorEndedLease, reason: 'it hangs' },
      { attempt: 3, holder: 'c', durationSec: 1, end: NAMES.failed, code: 'DISK', reason: 'no space' },
      { attempt: 4, holder: 'd', durationSec: null, end: null, endedAt: null },
    ])
  })

  test('a cancel of a job that only waited ends no attempt a second time', () => {
    const attempts = attemptsOf(
      [
        told(NAMES.processing, 0, { attempt: 1, holder: 'a' }),
        told(NAMES.retry, 5, { attempt: 1, code: 'NETWORK' }),
        told(NAMES.operatorCancel, 9, { attempt: 1, code: 'cancelled' }),
      ],
      NAMES,
    )
    expect(attempts).toMatchObject([{ attempt: 1, end: NAMES.retry, code: 'NETWORK' }])
  })

  test.each([Number.MAX_VALUE, Infinity, NaN, 0.5, '1', null, undefined, {}])('an attempt of %p is none', (attempt) => {
    expect(attemptsOf([told(NAMES.processing, 0, { attempt })], NAMES)).toEqual([])
  })
})

describe('history', () => {
  const counts = (...all: [string, string, number][]) => ({
    cursor: '7',
    isBehind: false,
    counts: all.map(([type, minute, told]) => ({ type, minute, told })),
  })

  test('shows sixty minutes up to now, with what was told in each and the last depth that was seen', () => {
    const history = createHistory('jobs', NAMES)
    expect(history.show(NOW)).toMatchObject({ table: 'jobs', hasEvents: false })
    history.addTold(
      counts(
        [NAMES.done, '2026-11-18T12:02', 3],
        [NAMES.reaperRequeued, '2026-11-18T12:02', 2],
        [NAMES.failed, '2026-11-18T12:02', 1],
        [NAMES.reaperFailed, '2026-11-18T12:02', 1],
        [NAMES.progress, '2026-11-18T12:02', 99],
      ),
    )
    history.addTold(counts([NAMES.done, '2026-11-18T12:02', 4]))
    history.addDepth(NOW, { queued: 9, processing: 2 })
    history.addDepth(inSec(20), { queued: 8, processing: 1 })
    const { minutes, hasEvents } = history.show(NOW)
    expect([hasEvents, history.cursor(), minutes.length]).toEqual([true, '7', 60])
    expect([minutes[0]?.minute, minutes[59]?.minute]).toEqual(['2026-11-18T11:04', '2026-11-18T12:03'])
    expect(minutes[58]).toMatchObject({ done: 7, requeued: 2, failed: 2, queued: null })
    expect(minutes[59]).toMatchObject({ done: 0, queued: 8, processing: 1 })
  })

  test('forgets what is older than an hour, and what says it happens in the future or at no time', () => {
    const history = createHistory('jobs', NAMES)
    for (const minute of ['2026-11-18T11:03', '2026-11-18T11:04', '9999-12-31T23:59', 'yesterday', '<script>'])
      history.addTold(counts([NAMES.done, minute, 1]))
    history.addDepth(NOW, { queued: 0, processing: 0 })
    const sum = (at: Date): number => history.show(at).minutes.reduce((all, { done }) => all + done, 0)
    expect(sum(NOW)).toBe(1)
    expect(sum(inSec(-60))).toBe(1)
    history.addDepth(inSec(120), { queued: 0, processing: 0 })
    expect(sum(NOW)).toBe(0)
  })
})

describe('a timeline', () => {
  const told = (type: string, pct: number | null, attempt = 1): ToldEvent => ({
    at: null,
    type,
    details: pct === null ? { attempt } : { attempt, pct },
  })

  test('has progress that nothing interrupted as one line, and everything else as it was', () => {
    const flood = [1, 2, 3].map((pct) => told('progress', pct))
    const events = [told('processing', null), ...flood, told('note', null), told('progress', 9), told('done', null)]
    expect(withoutProgressRuns(events, 'progress').map(({ type, details }) => [type, details])).toEqual([
      ['processing', { attempt: 1 }],
      ['progress', { attempt: 1, pct: 3, from: 1, told: 3 }],
      ['note', { attempt: 1 }],
      ['progress', { attempt: 1, pct: 9 }],
      ['done', { attempt: 1 }],
    ])
  })

  test('does not mix the progress of two attempts', () => {
    const events = [told('progress', 5), told('progress', 1, 2), told('progress', 2, 2)]
    expect(withoutProgressRuns(events, 'progress').map(({ details }) => details)).toEqual([
      { attempt: 1, pct: 5 },
      { attempt: 2, pct: 2, from: 1, told: 2 },
    ])
    expect(withoutProgressRuns(events, null)).toEqual(events)
  })
})

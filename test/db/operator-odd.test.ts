/** What the words foretell is what the reaper then does, however odd the row. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'

import type { Profile } from '../../src/db/profile.ts'
import { type JobDetails, type Operator } from '../../src/operator/operator.ts'
import { createReaper, type Reaper } from '../../src/reaper/loop.ts'
import { eventually } from '../support/eventually.ts'
import { LADDER_MS, operatorOn, STAGES, withoutGrace } from '../support/operator.ts'
import { type CanonicalColumns, TEAMS, type TeamDatabase, teamDatabase } from '../support/profiles.ts'

const LONG_AGO = `now() - interval '8 hours'`
const EXPIRED: CanonicalColumns = {
  status: 'processing',
  holder: `'host-4711-k3f9'`,
  attempts: '1',
  leaseExpiresAt: `now() - interval '1 minute'`,
  heartbeatAt: `now() - interval '2 minutes'`,
  startedAt: `now() - interval '5 minutes'`,
}
const ALIVE: CanonicalColumns = { leaseExpiresAt: `now() + interval '1 minute'`, heartbeatAt: 'now()' }
const LEASELESS: CanonicalColumns = { leaseExpiresAt: 'null', holder: 'null' }

const ODD_ROWS: [string, CanonicalColumns][] = [
  ['lease over', {}],
  ['lease over, none left', { attempts: '3', maxAttempts: '3' }],
  ['lease alive', ALIVE],
  ['lease -infinity', { leaseExpiresAt: `'-infinity'` }],
  ['lease -infinity, heartbeat fresh', { leaseExpiresAt: `'-infinity'`, heartbeatAt: 'now()', startedAt: 'now()' }],
  ['lease infinity, heartbeat old', { leaseExpiresAt: `'infinity'`, heartbeatAt: LONG_AGO, startedAt: LONG_AGO }],
  ['lease infinity, heartbeat fresh', { leaseExpiresAt: `'infinity'`, heartbeatAt: 'now()' }],
  ['lease in the year 200000, heartbeat old', { leaseExpiresAt: `'200000-01-01'`, heartbeatAt: LONG_AGO }],
  ['lease in the year 200 BC', { leaseExpiresAt: `'0200-01-01 BC'` }],
  ['no lease, heartbeat old', { ...LEASELESS, heartbeatAt: LONG_AGO, startedAt: LONG_AGO }],
  ['no lease, heartbeat fresh', { ...LEASELESS, heartbeatAt: 'now()' }],
  ['no lease, heartbeat infinity', { ...LEASELESS, heartbeatAt: `'infinity'`, startedAt: LONG_AGO }],
  ['no lease, heartbeat -infinity', { ...LEASELESS, heartbeatAt: `'-infinity'` }],
  ['no lease, no heartbeat, started long ago', { ...LEASELESS, heartbeatAt: 'null', startedAt: LONG_AGO }],
  ['no lease, no heartbeat, started just now', { ...LEASELESS, heartbeatAt: 'null', startedAt: 'now()' }],
  [
    'no lease, heartbeat of the attempt before, started since',
    {
      ...LEASELESS,
      heartbeatAt: LONG_AGO,
      nextRunAt: `now() - interval '3 hours'`,
      startedAt: `now() - interval '2 hours'`,
    },
  ],
  ['lease alive, started long ago', { ...ALIVE, startedAt: LONG_AGO }],
  ['lease alive, far over its expected duration', { ...ALIVE, startedAt: LONG_AGO, expectedDurationMs: '1000' }],
  ['lease alive, started at -infinity', { ...ALIVE, startedAt: `'-infinity'` }],
  ['lease over, started at infinity', { startedAt: `'infinity'` }],
  ['lease over, due time infinity', { nextRunAt: `'infinity'` }],
  ['lease over, attempts 0', { attempts: '0' }],
  ['lease over, attempts 0 of 1', { attempts: '0', maxAttempts: '1' }],
  ['lease over, attempts negative', { attempts: '-5' }],
  ['lease over, more attempts than allowed', { attempts: '9', maxAttempts: '3' }],
  ['lease over, maximum 0', { maxAttempts: '0' }],
  ['lease over, attempts 30000 of 32000', { attempts: '30000', maxAttempts: '32000' }],
  ['lease over, holder NULL', { holder: 'null' }],
  ['lease over, holder empty', { holder: `''` }],
  ['lease over, unknown stage', { stage: `'Ünbekannt'` }],
  ['lease over, stage like a property of every object', { stage: `'__proto__'` }],
]

/** A team whose workers never count: a row without a lease has had one attempt more than it says. */
const RECOVERING = {
  ...TEAMS[0],
  title: 'workers that never count',
  entry: { table: 'jobs', policy: { countAttempts: 'recovery' } },
} as (typeof TEAMS)[number]

describe.each([...TEAMS, RECOVERING])('$title', (team) => {
  let t: TeamDatabase
  let profile: Profile
  let operator: Operator
  let reaper: Reaper
  beforeAll(async () => {
    t = await teamDatabase(team)
    profile = withoutGrace(t.profile)
    operator = operatorOn(t.db, [profile])
    reaper = createReaper({ db: t.db, tables: [profile], stages: STAGES, heartbeatSec: 10 })
  })
  afterAll(async () => {
    await t[Symbol.asyncDispose]()
  })

  async function look(id: string): Promise<JobDetails> {
    const [found] = await operator.find(id)
    if (!found) throw new Error(`no job ${id}`)
    return found
  }

  test.each(ODD_ROWS)('%s', async (_, columns) => {
    const id = await t.put({ ...EXPIRED, ...columns })
    const { job, explanation } = await look(id)
    const previewed = (await operator.dryRun(profile.table)).find((row) => row.id === id)
    await reaper.reap(profile.table)
    const after = await t.read(id)
    const isTaken = after.status !== 'processing'

    // By the rows, by the preview and in words: all three knew.
    expect(job.endsAt !== null && job.endsAt <= job.now).toBe(isTaken)
    expect(previewed !== undefined).toBe(isTaken)
    if (!isTaken) {
      expect(explanation.next).toMatch(/ (at|on) [\d-]* ?\d\d:\d\d:\d\d UTC /)
      await t.change(id, { leaseExpiresAt: `now() - interval '1 second'`, heartbeatAt: LONG_AGO, startedAt: LONG_AGO })
      await reaper.reap(profile.table)
      return
    }
    const told = (await t.events(id)).find(({ type }) => type.startsWith('reaper:'))
    expect(previewed).toMatchObject({ rule: told?.details.reason, attempt: told?.details.attempt })
    expect(job.rule).toBe(told?.details.reason as never)
    expect(explanation.next).toContain(`${job.rule}: `)
    expect(explanation.next).toContain('at the next pass of the reaper')
    expect(job.attemptThen).toBe(told?.details.attempt as number)
    if (after.status === 'queued') {
      expect([job.outcome, previewed?.outcome]).toEqual(['requeued', 'requeued'])
      expect(explanation.next).toContain('it is requeued')
      if (!t.has('nextRunAt')) return
      const foretold = timeIn(/runs again at (.*?) or a little later/.exec(explanation.next)?.[1], job.now)
      const pauseMs = LADDER_MS[Math.min(job.attemptThen, 3) - 1] ?? 0
      const lateMs = (after.nextRunAt as Date).getTime() - foretold.getTime()
      expect(lateMs).toBeGreaterThanOrEqual(0)
      // A tenth of jitter, and the moments between the look and the pass.
      expect(lateMs).toBeLessThan(pauseMs / 10 + 30_000)
    } else {
      expect([job.outcome, previewed?.outcome]).toEqual(['failed', 'failed'])
      expect(explanation.next).toContain('it fails')
      expect(explanation.next).toContain(
        profile.policy.onExpiry === 'fail' ? 'this table never requeues' : 'no attempt is left',
      )
    }
  })

  test('a run by workers that never count is counted when it is taken', async () => {
    const id = await t.put({ ...EXPIRED, ...LEASELESS, heartbeatAt: LONG_AGO, startedAt: LONG_AGO })
    const counted = profile.policy.countAttempts === 'recovery' ? 2 : 1
    expect((await look(id)).job.attemptThen).toBe(counted)
    await reaper.reap(profile.table)
    expect((await t.read(id)).attempts).toBe(counted)
  })

  test('a row in which nothing tells its age gets time first, and the words say so', async () => {
    const ageless = { ...EXPIRED, ...LEASELESS, heartbeatAt: 'null', startedAt: 'null' }
    const id = await t.put(ageless)
    const { job, explanation } = await look(id)
    const knowsAge = job.rule !== null
    await reaper.reap(profile.table)
    const after = await t.read(id)
    expect(after.status).toBe('processing')
    if (knowsAge) return
    expect(explanation.next).toContain('gives it time')
    expect(after.leaseExpiresAt).not.toBeNull()
    expect((await look(id)).job.rule).toBe('lease_expired')
  })

  test('what ends later is taken at the time that was said, by the rule that was said', async () => {
    const id = await t.put({ ...EXPIRED, ...ALIVE, leaseExpiresAt: `now() + interval '1200 milliseconds'` })
    const { job, explanation } = await look(id)
    expect(job.rule).toBe('lease_expired')
    expect(explanation.now).toMatch(
      /^held by host-4711-k3f9, attempt 1 of 3, last heartbeat 0 s ago, lease ends in 1 s$/,
    )
    const endsAt = job.endsAt?.getTime() ?? 0
    await eventually(async () => {
      await reaper.reap(profile.table)
      return (await t.read(id)).status !== 'processing'
    })
    const told = (await t.events(id)).find(({ type }) => type.startsWith('reaper:'))
    expect(told?.details.reason).toBe('lease_expired')
    const [{ at } = { at: '' }] = (await look(id)).timeline.filter(({ type }) => type.startsWith('reaper:'))
    expect(Date.parse(at ?? '')).toBeGreaterThanOrEqual(endsAt)
  })

  test.each<[string, CanonicalColumns, RegExp]>([
    ['due time infinity', { nextRunAt: `'infinity'` }, /it waits for ever/],
    ['due time in the year 200000', { nextRunAt: `'200000-01-01'` }, /it waits for ever/],
    ['due time -infinity', { nextRunAt: `'-infinity'` }, /next free worker/],
    ['no attempts left', { attempts: '3', maxAttempts: '3' }, /no claim takes it/],
    ['maximum 0, no attempt made', { attempts: '0', maxAttempts: '0' }, /next free worker/],
  ])('a queued job with %s says whether it runs', async (_, columns, words) => {
    if (columns.nextRunAt && !t.has('nextRunAt')) return
    const id = await t.put(columns)
    const { explanation } = await look(id)
    expect(explanation.next).toMatch(words)
    const due = (await operator.overview()).tables[0]?.due
    expect(due).toBe(words.source.includes('worker') ? 1 : 0)
    await operator.act('cancel', { table: profile.table, id }, { actor: 'Ana', reason: 'test' })
  })
})

/** `12:04:10 UTC` or `2026-11-19 00:04:10 UTC`. */
function timeIn(words: string | undefined, now: Date): Date {
  const [, day, time] = /^(\d{4}-\d\d-\d\d)? ?(\d\d:\d\d:\d\d) UTC$/.exec(words ?? '') ?? []
  return new Date(`${day ?? now.toISOString().slice(0, 10)}T${time}Z`)
}

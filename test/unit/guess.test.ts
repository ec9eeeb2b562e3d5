/** Guesses about a team's table: what is taken, what is not, and that the few lines printed are the profile proposed. */
import { describe, expect, test } from 'bun:test'
import fc from 'fast-check'

import { duration } from '../../src/job/duration.ts'
import { attachArguments, type AttachOptions } from '../../src/cli/attach-options.ts'
import { UsageError } from '../../src/cli/command.ts'
import { entryOf } from '../../src/cli/entry.ts'
import { type GuessOptions, guessProfile, type Proposal, type TableFacts } from '../../src/cli/guess.ts'
import { KNOWN_COLUMNS, type KnownColumn } from '../../src/cli/known-names.ts'
import { type Profile, profileSchema } from '../../src/db/profile.ts'
import { parseProfiles } from '../../src/db/profile-file.ts'
import type { StatusWords } from '../../src/db/survey.ts'

const TZ = 'timestamp with time zone'
const OPTIONS: GuessOptions = { events: null, isRecoverOnly: false }

/** Columns as `{ name: type }`; words as they would be found among the rows. */
function facts(
  columns: Record<string, string>,
  words: string[] = ['queued', 'processing', 'done', 'failed'],
  more: Partial<TableFacts> = {},
): TableFacts {
  const status = Object.keys(columns).find((name) => /status|state/i.test(name)) ?? 'status'
  const seen: StatusWords = { words: words.map((word) => ({ word, rows: 7 })), isClosed: false, default: null }
  const [id = 'id'] = Object.keys(columns)
  return {
    table: 'jobs',
    fullName: 'public.jobs',
    columns: Object.entries(columns).map(([name, type]) => ({ name, type, words: null })),
    primaryKey: [id],
    uniqueColumns: new Set([id]),
    words: { [status]: seen },
    eventTables: [],
    takenTables: new Set(['jobs']),
    ...more,
  }
}

function guess(input: TableFacts, options: Partial<GuessOptions> = {}): Proposal & { profile: Profile } {
  const proposal = guessProfile(input, { ...OPTIONS, ...options })
  if (!proposal.profile) throw new Error(JSON.stringify(proposal.guesses))
  return { ...proposal, profile: proposal.profile }
}

function about(proposal: Proposal, place: string): Proposal['guesses'][number] {
  const found = proposal.guesses.find((each) => each.place === place)
  if (!found) throw new Error(`no guess about ${place}`)
  return found
}

describe('columns', () => {
  test.each([
    ['holder', 'locked_by', 'text'],
    ['holder', 'lockedBy', 'character varying(255)'],
    ['holder', 'worker_id', 'text'],
    ['holder', 'CLAIMED_BY', 'text'],
    ['leaseExpiresAt', 'locked_until', TZ],
    ['leaseExpiresAt', 'leaseUntil', TZ],
    ['leaseExpiresAt', 'visible_until', TZ],
    ['heartbeatAt', 'lastHeartbeat', TZ],
    ['heartbeatAt', 'last_ping_at', 'timestamp(3) with time zone'],
    ['attempts', 'tries', 'smallint'],
    ['attempts', 'retryCount', 'integer'],
    ['maxAttempts', 'maxRetries', 'integer'],
    ['stage', 'step', 'text'],
    ['stage', 'kind', 'character varying(40)'],
    ['nextRunAt', 'run_at', TZ],
    ['nextRunAt', 'availableAt', TZ],
    ['failCode', 'error_code', 'text'],
    ['failReason', 'lastError', 'text'],
    ['failReason', 'error', 'text'],
    ['progress', 'percent', 'numeric(5,2)'],
    ['startedAt', 'claimed_at', TZ],
    ['finishedAt', 'Done At', TZ],
  ] as const)('%s is found as %s', (key, name, type) => {
    const { profile } = guess(facts({ id: 'uuid', status: 'text', [name]: type }))
    expect(profile.columns[key]).toBe(name)
  })

  test.each([
    ['heartbeatAt', 'last_heartbeat_at', 'timestamp without time zone', 'leasehold_last_heartbeat_at'],
    ['attempts', 'attempts', 'text', 'attempt_count'],
    ['holder', 'worker_id', 'uuid', 'locked_by'],
    ['holder', 'locked_by', 'character varying(20)', 'leasehold_locked_by'],
    ['progress', 'progress', 'jsonb', 'leasehold_progress'],
    ['failReason', 'error', 'jsonb', 'fail_reason'],
  ] as const)('%s: %s of type %s is named and not taken; %s is added', (key, name, type, added) => {
    const proposal = guess(facts({ id: 'uuid', status: 'text', [name]: type }))
    expect(proposal.profile.columns[key]).toBe(added)
    expect(about(proposal, `columns.${key}`).why).toContain(`${name} is ${type}`)
    const again = guess(facts({ id: 'uuid', status: 'text', [name]: type, [added]: KNOWN_TYPES[key] ?? '' }))
    expect(again.profile.columns[key]).toBe(added)
  })

  test('an owner is a holder only beside another sign of leases', () => {
    const alone = guess(facts({ id: 'uuid', status: 'text', owner: 'text' }))
    expect(alone.profile.columns.holder).toBe('locked_by')
    expect(about(alone, 'columns.holder').why).toContain('owner may be a person')
    const leased = guess(facts({ id: 'uuid', status: 'text', owner: 'text', locked_until: TZ }))
    expect(leased.profile.columns.holder).toBe('owner')
  })

  test('odd names are taken exactly as they are', () => {
    const { profile, base } = guess(
      facts({ 'job id': 'bigint', Status: 'text', LastHeartbeat: TZ, RetryCount: 'integer' }),
    )
    expect(profile.columns).toMatchObject({ id: 'job id', status: 'Status', heartbeatAt: 'LastHeartbeat' })
    expect(base).toBe('camelCase')
    expect(profile.columns.leaseExpiresAt).toBe('LeaseExpiresAt')
  })

  test('what is added follows the spelling of the table', () => {
    const camel = guess(facts({ id: 'uuid', status: 'text', createdAt: TZ, inputUrl: 'text' }))
    expect(camel.profile.columns).toMatchObject({ leaseExpiresAt: 'leaseExpiresAt', attempts: 'attemptCount' })
    expect(camel.profile.createdAt).toBe('createdAt')
    const snake = guess(facts({ id: 'uuid', status: 'text', created_at: TZ, input_url: 'text' }))
    expect(snake.profile.columns).toMatchObject({ leaseExpiresAt: 'lease_expires_at', attempts: 'attempt_count' })
  })

  test('times of another type are not read or written', () => {
    const { profile } = guess(facts({ id: 'uuid', status: 'text', created_at: 'date', updated_at: 'text' }))
    expect([profile.createdAt, profile.updatedAt]).toEqual([null, null])
  })

  test('without a primary key a unique id is likely, anything else a doubt', () => {
    const columns = { id: 'uuid', status: 'text' }
    const unique = guess(facts(columns, undefined, { primaryKey: [] }))
    expect(about(unique, 'columns.id').sureness).toBe('likely')
    const plain = guess(facts(columns, undefined, { primaryKey: ['id', 'status'], uniqueColumns: new Set() }))
    expect(about(plain, 'columns.id').sureness).toBe('unsure')
  })

  test.each([
    [{ id: 'uuid', name: 'text' }, 'columns.status', 'no column is called status'],
    [{ id: 'uuid', status: 'integer' }, 'columns.status', 'status is integer'],
  ] as const)('nothing is proposed for %j', (columns, place, why) => {
    const proposal = guessProfile(facts(columns), OPTIONS)
    expect(proposal.profile).toBeNull()
    expect(about(proposal, place).why).toContain(why)
  })
})

describe('with --recover-only', () => {
  test('nothing is added, and without a counter expired jobs fail', () => {
    const proposal = guess(facts({ id: 'uuid', status: 'text', heartbeat_at: TZ }), { isRecoverOnly: true })
    const { columns, events, policy } = proposal.profile
    expect(Object.values(columns).filter(Boolean)).toEqual(['id', 'status', 'heartbeat_at'])
    expect([events, policy.onExpiry]).toEqual([null, 'fail'])
    expect(about(proposal, 'policy.onExpiry').why).toContain('nothing counts attempts')
  })

  test('with a counter they are requeued', () => {
    const columns = { id: 'uuid', status: 'text', attempts: 'integer' }
    expect(guess(facts(columns), { isRecoverOnly: true }).profile.policy.onExpiry).toBe('requeue')
  })
})

describe('status words', () => {
  test.each([
    [
      ['PENDING', 'RUNNING', 'COMPLETED', 'FAILED'],
      ['PENDING', 'RUNNING', 'COMPLETED', 'FAILED'],
    ],
    [
      ['new', 'in_progress', 'success', 'error'],
      ['new', 'in_progress', 'success', 'error'],
    ],
    [
      ['Waiting', 'inProgress', 'Finished', 'Errored'],
      ['Waiting', 'inProgress', 'Finished', 'Errored'],
    ],
    [
      ['ready', 'active', 'complete', 'dead', 'cancelled'],
      ['ready', 'active', 'complete', 'dead'],
    ],
  ])('%j', (words, expected) => {
    const proposal = guess(facts({ id: 'uuid', status: 'text' }, words))
    expect(Object.values(proposal.profile.statuses)).toEqual(expected)
    expect(about(proposal, 'statuses.queued').sureness).toBe('sure')
  })

  test('of several words the default of the column is the beginning; the others are named', () => {
    const words: StatusWords = {
      words: ['queued', 'scheduled', 'pending', 'running', 'done', 'failed', 'dead'].map((word) => ({
        word,
        rows: null,
      })),
      isClosed: true,
      default: 'pending',
    }
    const proposal = guess(facts({ id: 'uuid', status: 'text' }, [], { words: { status: words } }))
    expect(proposal.profile.statuses).toEqual({
      queued: 'pending',
      processing: 'running',
      done: 'done',
      failed: 'failed',
    })
    expect(about(proposal, 'statuses.queued')).toMatchObject({
      sureness: 'sure',
      why: expect.stringContaining('queued, scheduled'),
    })
    expect(about(proposal, 'statuses.failed')).toMatchObject({
      sureness: 'likely',
      why: expect.stringContaining('dead'),
    })
  })

  test('a word nobody has seen is only a suggestion', () => {
    const proposal = guess(facts({ id: 'uuid', status: 'text' }, ['QUEUED', 'DONE']))
    expect(proposal.profile.statuses.failed).toBe('FAILED')
    expect(about(proposal, 'statuses.failed').sureness).toBe('unsure')
    expect(about(guess(facts({ id: 'uuid', status: 'text' }, [])), 'columns.status').sureness).toBe('unsure')
  })
})

describe('the base', () => {
  const words = ['PENDING', 'RUNNING', 'COMPLETED', 'FAILED']
  const columns = {
    id: 'uuid',
    status: 'text',
    error_message: 'text',
    started_at: TZ,
    completed_at: TZ,
    created_at: TZ,
  }

  test('a table of PENDING and RUNNING without a counter is an orphan table, also after its migration', () => {
    const first = guess(facts(columns, words))
    expect(first.base).toBe('orphan')
    expect(first.profile.policy.onExpiry).toBe('fail')
    const types = Object.fromEntries(
      Object.entries(first.profile.columns).flatMap(([key, name]) =>
        name === null ? [] : [[name, KNOWN_TYPES[key] ?? 'text']],
      ),
    )
    const again = guess(facts({ ...types, ...columns, id: 'uuid' }, words))
    expect(again.profile).toEqual(first.profile)
  })

  test('with a counter of its own it is not', () => {
    expect(guess(facts({ ...columns, retry_count: 'integer' }, words)).base).toBe('snake_case')
  })
})

describe('events', () => {
  const jobs = { id: 'uuid', status: 'text', created_at: TZ }
  const column = (name: string, type: string) => ({ name, type, words: null })
  const eventColumns = [
    column('job_id', 'uuid'),
    column('payload', 'jsonb'),
    column('event_type', 'text'),
    column('at', TZ),
  ]
  const events = (table: string, references: { column: string; table: string }[] = []) => ({
    table,
    columns: eventColumns,
    references,
  })

  test('a table that points here comes first, and its own columns are named', () => {
    const eventTables = [events('job_events'), events('clip_log', [{ column: 'job_id', table: 'public.jobs' }])]
    const { profile } = guess(facts(jobs, undefined, { eventTables }))
    expect(profile.events).toMatchObject({
      table: 'clip_log',
      jobId: 'job_id',
      data: 'payload',
      type: 'event_type',
      at: 'at',
    })
  })

  test.each(['asr_events', 'media.job_events', 'job_outputs', 'job_events_leasehold'])('%s is not taken', (table) => {
    const { profile } = guess(facts(jobs, undefined, { eventTables: [events(table)] }))
    expect(profile.events?.table).toBe('job_events')
  })

  test('a new one stands in the schema of its jobs, under a name that is free', () => {
    const more = { table: 'media.jobs', fullName: 'media.jobs', takenTables: new Set(['media.job_events']) }
    expect(guess(facts(jobs, undefined, more)).profile.events?.table).toBe('media.jobs_events')
    expect(guess(facts(jobs), { events: 'my_events' }).profile.events?.table).toBe('my_events')
  })
})

const KNOWN_TYPES: Record<string, string> = Object.fromEntries(
  Object.entries<KnownColumn>(KNOWN_COLUMNS).map(([key, { wanted }]) => [
    key,
    wanted === 'timestamptz' ? TZ : wanted.startsWith('text') ? 'text' : 'integer',
  ]),
)

test('whatever the table, the proposal is a valid profile, uses each column once, and its entry reads back as itself', () => {
  const names = Object.values<KnownColumn>(KNOWN_COLUMNS).flatMap(({ names, vague = [] }) => [...names, ...vague])
  const spelled = fc
    .constantFrom(...names, 'owner', 'updated_at', 'created_at', 'stage', 'a.b', '1st', 'x'.repeat(63))
    .chain((name) =>
      fc.constantFrom(name, camel(name), name.toUpperCase(), camel(`_${name}`), name.replaceAll('_', ' ')),
    )
  const type = fc.constantFrom(
    'text',
    TZ,
    'timestamp without time zone',
    'integer',
    'character varying(20)',
    'jsonb',
    'numeric(3,1)',
    'uuid',
  )
  const words = fc.subarray([
    'queued',
    'pending',
    'RUNNING',
    'processing',
    'done',
    'Success',
    'failed',
    'dead',
    'x'.repeat(70),
  ])
  const property = fc.property(
    fc.dictionary(spelled, type, { noNullPrototype: true }),
    words,
    fc.boolean(),
    (columns, words, isRecoverOnly) => {
      const input = facts({ id: 'uuid', status: 'text', ...columns }, words)
      const { profile, base } = guess(input, { isRecoverOnly })
      expect(profileSchema.safeParse(profile).success).toBe(true)
      const entry = JSON.parse(JSON.stringify(entryOf(profile, base))) as unknown
      expect(parseProfiles([entry], 'tables.json')).toEqual([profile])
      const used = Object.values(profile.columns).filter((each) => each !== null)
      expect(new Set(used).size).toBe(used.length)
      if (isRecoverOnly) expect(used.filter((each) => !input.columns.some(({ name }) => name === each))).toEqual([])
    },
  )
  fc.assert(property, { numRuns: 500 })
})

function camel(name: string): string {
  return name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase())
}

describe('arguments', () => {
  test.each<[string | undefined, AttachOptions, string]>([
    [undefined, { apply: true }, 'expected a table'],
    ['"jobs"', {}, 'without quotes'],
    ['jobs', { events: 'a b.c.d' }, 'expected a table name'],
  ])('%j with %j is refused', (table, options, said) => {
    expect(() => attachArguments(table, options)).toThrow(UsageError)
    expect(() => attachArguments(table, options)).toThrow(said)
  })

  test('everything at once', () => {
    expect(attachArguments('a.b', { events: 'e', recoverOnly: true, apply: true, file: 't.json' })).toEqual({
      table: 'a.b',
      events: 'e',
      file: 't.json',
      isRecoverOnly: true,
      isApply: true,
    })
  })
})

test.each([
  [0, '0 s'],
  [75, '1 min 15 s'],
  [3600, '1 h'],
  [90_061, '1 d 1 h'],
])('%p seconds are %s', (sec, text) => {
  expect(duration(sec)).toBe(text)
})

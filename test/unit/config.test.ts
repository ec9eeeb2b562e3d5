/** The environment: defaults, precedence, and every kind of nonsense. */
import { describe, expect, test } from 'bun:test'

import { ConfigError, type Environment, loadConfig } from '../../src/config/config.ts'

function faultsOf(env: Environment): string[] {
  try {
    loadConfig(env)
    return []
  } catch (error) {
    if (error instanceof ConfigError) return error.faults
    throw error
  }
}

describe('defaults', () => {
  test('an empty environment is the documented default', () => {
    expect(loadConfig({})).toMatchObject({
      heartbeatSec: 10,
      leaseTimeoutSec: 30,
      maxAttempts: 3,
      backoffLadderMs: [30_000, 120_000, 600_000],
      stages: { leaseSec: { clip: 60, asr: 120, burnin: 80 }, defaultLeaseSec: 300, maxRuntimeSec: 21_600 },
      reaper: { tables: ['jobs', 'asr_jobs'], intervalSec: 60, batchSize: 1000, nullLeaseSec: 3600 },
      http: { host: '127.0.0.1', port: 9464 },
      database: { url: null },
      warnings: [],
    })
  })
})

describe('precedence (S9)', () => {
  test.each([
    [{ QUEUE_MAX_ATTEMPTS: '7' }, 7],
    [{ QUEUE_MAX_ATTEMPTS: '7', MAX_ATTEMPTS: '6' }, 6],
    [{ QUEUE_MAX_ATTEMPTS: '7', MAX_ATTEMPTS: '6', JOB_MAX_ATTEMPTS: '5' }, 5],
  ])('%p means %p attempts', (env, attempts) => {
    expect(loadConfig(env).maxAttempts).toBe(attempts)
  })

  test('HEARTBEAT_INTERVAL_SEC beats HEARTBEAT_SEC', () => {
    expect(loadConfig({ HEARTBEAT_SEC: '15' }).heartbeatSec).toBe(15)
    expect(loadConfig({ HEARTBEAT_SEC: '15', HEARTBEAT_INTERVAL_SEC: '12' }).heartbeatSec).toBe(12)
  })

  test('DEFAULT_LEASE_SEC beats QUEUE_VISIBILITY_SEC', () => {
    expect(loadConfig({ QUEUE_VISIBILITY_SEC: '100' }).stages.defaultLeaseSec).toBe(100)
    expect(loadConfig({ QUEUE_VISIBILITY_SEC: '100', DEFAULT_LEASE_SEC: '200' }).stages.defaultLeaseSec).toBe(200)
  })

  test.each([
    [{ JOB_BACKOFF_MS_BASE: '1000', JOB_BACKOFF_MS_MAX: '4000' }, [1000, 2000, 4000]],
    [{ QUEUE_RETRY_BACKOFF_MS_BASE: '5000', QUEUE_RETRY_BACKOFF_MS_MAX: '5000' }, [5000]],
    [{ QUEUE_RETRY_BACKOFF_MS_BASE: '5000', JOB_BACKOFF_MS_BASE: '1000', JOB_BACKOFF_MS_MAX: '1000' }, [1000]],
    [{ JOB_BACKOFF_MS_BASE: '300000' }, [300_000, 600_000]],
    [{ JOB_BACKOFF_MS_MAX: '60000' }, [30_000, 60_000]],
    [{ JOB_BACKOFF_MS_MAX: '10000' }, [10_000]],
  ])('%p makes the ladder %p', (env, ladder) => {
    expect(loadConfig(env).backoffLadderMs).toEqual(ladder)
  })

  test('any stage may have its own factor', () => {
    const { stages } = loadConfig({ ENCODE_SLA_FACTOR: '20', CLIP_SLA_FACTOR: '9', HEARTBEAT_SEC: '2' })
    expect(stages.leaseSec).toEqual({ clip: 18, asr: 24, burnin: 16, encode: 40 })
  })
})

describe('nonsense', () => {
  test.each(['', ' ', '-5', '10s', 'NaN', 'Infinity', '1e3', '0x10', '0', '1e309', '60;', '١٢'])(
    'REAPER_INTERVAL_SEC=%p names the variable, what was expected and what came',
    (value) => {
      const faults = faultsOf({ REAPER_INTERVAL_SEC: value })
      expect(faults).toHaveLength(1)
      expect(faults[0]).toMatch(/^REAPER_INTERVAL_SEC: expected a number of seconds from 0\.2 to 86400, got /)
      expect(faults[0]).toContain(value.trim() === '' ? 'an empty value' : value.trim())
    },
  )

  test('every fault is told at once', () => {
    expect(
      faultsOf({
        REAPER_INTERVAL_SEC: 'x',
        HTTP_PORT: '70000',
        LOG_LEVEL: 'loud',
        CLIP_SLA_FACTOR: '-1',
        FOO_SLA_FACTOR: 'a',
      }),
    ).toHaveLength(5)
  })

  test('a heartbeat longer than the lease is refused with both names', () => {
    expect(faultsOf({ HEARTBEAT_SEC: '400' }).join()).toContain(
      'DEFAULT_LEASE_SEC: expected at least two heartbeats (800 s with HEARTBEAT_SEC=400), got 300',
    )
    expect(faultsOf({ LEASE_TIMEOUT_SEC: '15' }).join()).toContain('LEASE_TIMEOUT_SEC')
    expect(faultsOf({ QUEUE_VISIBILITY_SEC: '5' }).join()).toContain('QUEUE_VISIBILITY_SEC')
  })

  test('a base above its max is refused', () => {
    expect(faultsOf({ JOB_BACKOFF_MS_BASE: '10', QUEUE_RETRY_BACKOFF_MS_MAX: '5' }).join()).toContain(
      'QUEUE_RETRY_BACKOFF_MS_MAX (5)',
    )
  })

  test.each(['postgres:/x', 'mysql://u@h/d', 'localhost:5432', 'postgres://host', ' ', 'postgres://u:hunter2@'])(
    'DATABASE_URL=%p is refused, and never shown',
    (url) => {
      const [fault = ''] = faultsOf({ DATABASE_URL: url })
      expect(fault).toStartWith('DATABASE_URL: expected a PostgreSQL URL')
      expect(fault).not.toContain('hunter2')
    },
  )

  test.each(['jobs; drop table x', 'jobs,', 'jobs,jobs', '"jobs"', 'a.b.c', ''])(
    'Q1: REAPER_TABLES=%p is refused',
    (tables) => {
      expect(faultsOf({ REAPER_TABLES: tables }).join()).toContain('REAPER_TABLES: expected table names')
    },
  )

  test('what is only doubtful warns', () => {
    expect(loadConfig({ CLIP_SLA_FACTOR: '2' }).warnings.join()).toContain('CLIP_SLA_FACTOR=2')
    expect(loadConfig({ DEFAULT_LEASE_SEC: '25' }).warnings.join()).toContain('DEFAULT_LEASE_SEC')
    expect(loadConfig({ REAPER_NULL_LEASE_SEC: '10' }).warnings.join()).toContain('REAPER_NULL_LEASE_SEC')
  })
})

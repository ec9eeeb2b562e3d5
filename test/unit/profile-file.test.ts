/** The file of tables: a few lines become a whole profile, and a mistake is told with its place and what was meant. */
import { describe, expect, test } from 'bun:test'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { loadProfiles, parseProfiles, pickProfiles, ProfileError } from '../../src/db/profile-file.ts'
import { camelCaseProfile, orphanProfile, snakeCaseProfile } from '../../src/db/profiles.ts'
import { profileSchema } from '../../src/db/profile.ts'
import { closest } from '../../src/job/closest.ts'

function faultsOf(content: unknown): string[] {
  try {
    parseProfiles(content, 'tables.json')
    return []
  } catch (error) {
    if (error instanceof ProfileError) return error.faults
    throw error
  }
}

describe('a file of tables', () => {
  test('a name alone is a table in our own spelling; extends picks another', () => {
    const [plain, camel, orphan] = parseProfiles(
      { tables: [{ table: 'jobs' }, { extends: 'camelCase', table: 'Job' }, { extends: 'orphan', table: 'job' }] },
      'tables.json',
    )
    expect(plain).toEqual(snakeCaseProfile('jobs'))
    expect(camel).toEqual(camelCaseProfile('Job'))
    expect(orphan).toEqual(orphanProfile('job'))
  })

  test('what is written is laid over it; null takes away', () => {
    const [profile] = parseProfiles(
      [{ table: 'jobs', columns: { holder: 'worker', progress: null }, events: null, policy: { onExpiry: 'fail' } }],
      'tables.json',
    )
    const base = snakeCaseProfile('jobs')
    expect(profile).toEqual({
      ...base,
      columns: { ...base.columns, holder: 'worker', progress: null },
      events: null,
      policy: { ...base.policy, onExpiry: 'fail' },
    })
  })

  test.each([snakeCaseProfile('jobs'), camelCaseProfile('Jobs'), orphanProfile('s.job')])(
    'a built-in is valid itself',
    (profile) => {
      expect(profileSchema.parse(profile)).toEqual(profile)
    },
  )

  test.each<[string, unknown, string]>([
    ['no list', {}, 'expected a list of tables'],
    ['an empty list', [], 'expected a list of tables'],
    ['no name', [{ columns: {} }], 'tables[0].table: expected the name of a table'],
    ['a typing error in extends', [{ table: 'jobs', extends: 'snakecase' }], 'did you mean snake_case?'],
    [
      'a typing error in a key',
      [{ table: 'jobs', colums: {} }],
      'tables[0].colums: there is no such entry, did you mean columns?',
    ],
    [
      'a typing error in a column key',
      [{ table: 'jobs', columns: { leaseExpireAt: 'x' } }],
      'tables[0].columns.leaseExpireAt: there is no such entry, did you mean leaseExpiresAt?',
    ],
    [
      'injected SQL in a column',
      [{ table: 'jobs', columns: { holder: 'x"; drop table jobs; --' } }],
      'tables[0].columns.holder: expected a plain name',
    ],
    [
      'injected SQL in a table',
      [{ table: 'jobs; drop table jobs' }],
      'tables[0].table: expected a table name like jobs',
    ],
    [
      'injected SQL in the events table',
      [{ table: 'jobs', events: { table: "e'; --" } }],
      'tables[0].events.table: expected a table name',
    ],
    ['three parts in a name', [{ table: 'db.media.jobs' }], 'tables[0].table: expected a table name'],
    ['no id', [{ table: 'jobs', columns: { id: null } }], 'tables[0].columns.id: expected a plain name'],
    [
      'a number as a column',
      [{ table: 'jobs', columns: { stage: 7 } }],
      'tables[0].columns.stage: expected a plain name',
    ],
    ['an unknown policy', [{ table: 'jobs', policy: { onExpiry: 'retry' } }], 'tables[0].policy.onExpiry'],
    ['requeue without a counter', [{ table: 'jobs', columns: { attempts: null } }], 'would be requeued for ever'],
    ['two stages', [{ table: 'jobs', stage: 'clip' }], 'set one of the two'],
    ['a word for two statuses', [{ table: 'jobs', statuses: { done: 'failed' } }], 'expected four different words'],
    ['a column twice', [{ table: 'jobs', columns: { holder: 'stage' } }], 'got stage twice'],
    [
      'stale before two heartbeats',
      [{ table: 'jobs', policy: { heartbeatSec: 30, staleAfterSec: 40 } }],
      'expected at least two heartbeats (60 s), got 40',
    ],
    ['a table twice', [{ table: 'jobs' }, { table: 'jobs' }], 'jobs: expected every table once'],
  ])('%s is refused with its place', (_, content, fault) => {
    expect(faultsOf(content).join('\n')).toContain(fault)
  })

  test('all faults are told at once', () => {
    expect(faultsOf([{ table: 'a b;c' }, { table: 'jobs', extends: 'x' }, { table: 'ok', colums: 1 }])).toHaveLength(3)
  })

  test('__proto__ in the file changes nothing but is refused', () => {
    expect(faultsOf(JSON.parse('[{"table":"jobs","columns":{"__proto__":{"polluted":1}}}]'))).not.toEqual([])
    expect(({} as Record<string, unknown>).polluted).toBeUndefined()
  })

  test('JSON and modules are read; a broken file is named', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tables-'))
    writeFileSync(join(folder, 'tables.json'), '{"tables":[{"table":"jobs"}]}')
    writeFileSync(join(folder, 'tables.ts'), `export default [{ table: 'jobs' }]`)
    writeFileSync(join(folder, 'broken.json'), '{')
    expect(await loadProfiles(join(folder, 'tables.json'))).toEqual([snakeCaseProfile('jobs')])
    expect(await loadProfiles(join(folder, 'tables.ts'))).toEqual([snakeCaseProfile('jobs')])
    expect(await loadProfiles(join(folder, 'broken.json')).catch(String)).toContain('the file could not be read')
    expect(await loadProfiles(join(folder, 'none.json')).catch(String)).toContain('the file could not be read')
    rmSync(folder, { recursive: true })
  })

  test('names pick from the file; one that is not there is told with what was meant', () => {
    const profiles = parseProfiles([{ table: 'jobs' }, { table: 'asr_jobs' }], 'tables.json')
    expect(pickProfiles(profiles, ['asr_jobs'], 'f').map(({ table }) => table)).toEqual(['asr_jobs'])
    expect(pickProfiles(profiles, null, 'f')).toHaveLength(2)
    expect(() => pickProfiles(profiles, ['asr_job'], 'f')).toThrow('did you mean asr_jobs?')
  })
})

test.each([
  ['lockedBy', 'locked_by'],
  ['lease_expire_at', 'lease_expires_at'],
  ['frobnicate', null],
])('the word meant by %s is %p', (word, meant) => {
  expect(closest(word, ['locked_by', 'lease_expires_at', 'status'])).toBe(meant)
})

/** Commands that are printed to be pasted: a real shell must read back just what was meant. */
import { describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'

import { commandFor, commandForAll } from '../../src/operator/command.ts'

/** The words as a program behind the shell gets them. */
function wordsOf(command: string): string[] {
  const { stdout } = spawnSync('bash', ['-c', `printf '%s\\0' ${command}`], { encoding: 'utf8' })
  return stdout.split('\0').slice(0, -1)
}

const IDS = [
  '4711',
  '--yes',
  '-1',
  `a'b"c`,
  '$(touch /tmp/x)',
  'a b\tc',
  '\u001b[31mred',
  'x\u202ey',
  ';rm',
  '*',
  'é',
  '',
]

describe('one job', () => {
  test.each(IDS)('%p is an id and nothing else', (id) => {
    const words = wordsOf(commandFor('retry', { table: 'media.jobs', id, status: 'failed', attempt: 3 }))
    expect(words[0]).toBe('retry')
    expect(words.filter((word) => word === id)).toHaveLength(1)
    if (id.startsWith('-')) expect(words.slice(-2)).toEqual(['--', id])
    expect(words).not.toContain(id.startsWith('-') ? undefined : '--')
  })

  test('what runs is meant at this attempt only', () => {
    const job = { table: 'jobs', id: '1', status: 'processing', attempt: 2 } as const
    expect(wordsOf(commandFor('cancel', job))).toEqual([
      'cancel',
      '1',
      '--table',
      'jobs',
      '--seen',
      'processing:2',
      '--reason',
      '...',
    ])
  })
})

test.each(IDS)('all with code %p', (code) => {
  const words = wordsOf(commandForAll('retry', 'jobs', { code, stage: null, holder: undefined }))
  expect(words).toEqual(['retry', '--table', 'jobs', `--code=${code}`, '--stage=', '--reason', '...', '--yes'])
})

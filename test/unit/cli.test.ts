/** Words and tables for a terminal: harmless, aligned, and cut where there is no room. */
import { describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'

import { safeJson } from '../../src/cli/json.ts'
import { statusNamed } from '../../src/cli/options.ts'
import { type Column, tabbed, terminalTable } from '../../src/cli/table.ts'
import { columns, cutTo, harmless, widthOf } from '../../src/cli/text.ts'
import { shellWord } from '../../src/job/shell-word.ts'
import { orphanProfile, snakeCaseProfile } from '../../src/db/profiles.ts'

describe('text', () => {
  test.each([
    ['\u001B[2J', '�[2J'],
    ['a\r\n\tb', 'a���b'],
    ['a\u009Bb\u202Ec\u2066d\u2028e', 'a�b�c�d�e'],
    ['half \uD800 of a letter', 'half � of a letter'],
    ['日本 👩‍👩‍👧 é', '日本 👩‍👩‍👧 é'],
  ])('%j comes out as %j', (text, shown) => {
    expect(harmless(text)).toBe(shown)
  })

  test('is cut to its length, and never in the middle of a letter', () => {
    expect(harmless('abcdef', 4)).toBe('abc…')
    expect(harmless('ab👩x', 4)).toBe('ab…')
    expect(harmless('x'.repeat(5_000_000))).toHaveLength(200)
  })

  test.each([
    ['日本語', 5, '日本…'],
    ['日本語', 6, '日本語'],
    ['ábc', 2, 'á…'],
  ])('%s in %i cells is %s', (text, cells, shown) => {
    expect(cutTo(text, cells)).toBe(shown)
    expect(widthOf(cutTo(text, cells))).toBeLessThanOrEqual(cells)
  })

  test('columns are aligned by what is seen, not by what is counted', () => {
    expect(
      columns([
        ['日本', 'x'],
        ['abcdef', 'y'],
      ]),
    ).toEqual(['日本    x', 'abcdef  y'])
  })
})

describe('a word for a shell', () => {
  test.each([
    '4711',
    'c/5cc8',
    '-1',
    '',
    "it's",
    'a b',
    '$(rm -rf /)',
    '`id`',
    '"\\',
    '日本',
    "\u001B[2J\n\t\u009B\u202E\\'x",
  ])('%j is read back as it was', (word) => {
    const { stdout } = spawnSync('bash', ['-c', `printf %s ${shellWord(word)}`], {
      env: { PATH: process.env.PATH ?? '', LC_ALL: 'C.UTF-8' },
      encoding: 'utf8',
    })
    expect(stdout).toBe(word)
    expect(shellWord(word)).not.toMatch(/[^\P{Cc}]|\u202E/u)
  })
})

test('JSON for a terminal reads back the same and holds nothing that could paint it', () => {
  const value = { '\u009B': 'a\u001B[2J\u202E\u2028\u007F\uFEFF', list: [1, null, 'é日本'] }
  const text = safeJson(value)
  expect(JSON.parse(text)).toEqual(value)
  expect(text).not.toMatch(/[^\P{Cc}]|[\u202E\u2028\uFEFF]/u)
  expect(text).toContain('é日本')
})

describe('a table', () => {
  interface Row {
    id: string
    table: string
    note: string
    many: number
  }
  const COLUMNS: Column<Row>[] = [
    { title: 'id', value: ({ id }) => id, isWhole: true },
    { title: 'table', value: ({ table }) => table, isTold: 'when it differs' },
    { title: 'note', value: ({ note }) => note },
    {
      title: 'many',
      value: ({ many }) => (many === 0 ? '' : String(many)),
      isNumber: true,
      isTold: 'when there is room',
    },
  ]
  const row = (given: Partial<Row>): Row => ({ id: 'a1', table: 'jobs', note: 'short', many: 1, ...given })
  const shown = (rows: Row[], width = 80): string[] => terminalTable(COLUMNS, rows, { width, paint: (_, text) => text })

  test('leaves out what says nothing or the same in every row', () => {
    expect(shown([row({ many: 0 })])).toEqual(['id  note', 'a1  short'])
    expect(shown([row({}), row({ table: 'asr_jobs', many: 12 })])).toEqual([
      'id  table     note   many',
      'a1  jobs      short     1',
      'a1  asr_jobs  short    12',
    ])
  })

  test('cuts the widest that may be cut, and leaves columns out before it breaks a line', () => {
    const long = row({ id: 'x'.repeat(20), note: 'y'.repeat(50) })
    expect(shown([long], 40)).toEqual([`id${' '.repeat(20)}note          many`, `${long.id}  ${'y'.repeat(11)}…     1`])
    expect(shown([long], 32)).toEqual([`id${' '.repeat(20)}note`, `${long.id}  ${'y'.repeat(9)}…`])
    for (const line of shown([long], 10)) expect(line.length).toBeLessThanOrEqual(30)
  })

  test('elsewhere has every cell, whole, between tabs', () => {
    const long = row({ note: `${'y'.repeat(500)}\tz\n`, many: 0 })
    expect(tabbed(COLUMNS, [long])).toEqual([`a1\tjobs\t${'y'.repeat(500)}�z�\t`])
  })
})

test('a status is known by our word or by the table’s own', () => {
  const profiles = [snakeCaseProfile('jobs'), orphanProfile('job')]
  expect(statusNamed('failed', profiles)).toBe('failed')
  expect(statusNamed('RUNNING', profiles)).toBe('processing')
  expect(() => statusNamed('RUNING', profiles)).toThrow('did you mean RUNNING?')
})

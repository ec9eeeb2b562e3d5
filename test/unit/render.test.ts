/** Fragments as plain text: values become literals, nested fragments stand in their place. */
import { expect, test } from 'bun:test'

import { render } from '../../src/db/render.ts'
import { join, raw, sql } from '../../src/db/sql.ts'

test.each([
  [sql`select ${'it’s'}, ${"O'Brien"}`, `select 'it’s', 'O''Brien'`],
  [sql`select ${'a\\b'}`, String.raw`select e'a\\b'`],
  [sql`select ${1.5}::float8, ${-2}, ${true}, ${null}`, 'select 1.5::float8, -2, true, null'],
  [
    sql`select ${'$1'} from ${raw('"T"')} where ${sql`x = ${raw('$1')} and y = ${3}`}`,
    `select '$1' from "T" where x = $1 and y = 3`,
  ],
  [sql`${join([sql`a`, sql`${'b'}`])}`, `a, 'b'`],
])('%#', (fragment, text) => {
  expect(render(fragment)).toBe(text)
})

test.each([[undefined], [Number.NaN], [Number.POSITIVE_INFINITY], [{ a: 1 }], [[1]]])(
  '%p has no place in SQL text',
  (value) => {
    expect(() => render(sql`select ${value as never}`)).toThrow('cannot be written')
  },
)

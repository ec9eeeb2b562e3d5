/** Text that becomes part of a statement: names, literals and arrays, whatever stands in them. */
import { expect, test } from 'bun:test'
import fc from 'fast-check'
import postgres from 'postgres'

import { list, quoteLiteral, quoteName } from '../../src/db/sql.ts'

test('any texts come back from an array, a literal and a name as they went in', async () => {
  const sql = postgres(process.env.TEST_SERVER_URL ?? '', { max: 1, onnotice: () => undefined })
  const text = fc
    .string({ unit: 'grapheme', maxLength: 20 })
    .filter((each) => !each.includes('\0') && each.isWellFormed())
  await fc.assert(
    fc.asyncProperty(fc.array(text, { maxLength: 5 }), async (texts) => {
      const [row] = await sql<{ back: string[] }[]>`select to_jsonb(${list(texts)}::text[]) as back`
      expect(row?.back).toEqual(texts)
      for (const each of texts) {
        const [literal] = await sql.unsafe<{ back: string }[]>(`select ${quoteLiteral(each)} as back`)
        expect(literal?.back).toBe(each)
        const name = each.slice(0, 10).toWellFormed() || 'x'
        const { columns } = await sql.unsafe(`select 1 as ${quoteName(name)}`)
        expect(columns[0]?.name).toBe(name)
      }
    }),
    { numRuns: 60 },
  )
  await sql.end()
})

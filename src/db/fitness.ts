/** Whether a job table fits its profile: every finding says what is wrong, what follows and what mends it. */
import { hintAt } from '../job/closest.ts'
import { type CatalogTable, quotedTable } from './catalog.ts'
import type { Finding } from './finding.ts'
import type { ColumnKey, Profile } from './profile.ts'
import { quoteLiteral, quoteName } from './sql.ts'

const TIMESTAMP = { fits: /^timestamp(\(\d\))? with time zone$/, wanted: 'timestamptz' }
const WHOLE = { fits: /^(smallint|integer|bigint)$/, wanted: 'integer' }

/** The types each column may have. An enum or domain of the team's own is fine for the status. */
const COLUMN_TYPES: Partial<Record<ColumnKey, { fits: RegExp; wanted: string }>> = {
  holder: { fits: /^(text|character varying.*)$/, wanted: 'text' },
  leaseExpiresAt: TIMESTAMP,
  heartbeatAt: TIMESTAMP,
  startedAt: TIMESTAMP,
  nextRunAt: TIMESTAMP,
  finishedAt: TIMESTAMP,
  attempts: WHOLE,
  maxAttempts: WHOLE,
  expectedDurationMs: WHOLE,
  progress: { fits: /^(smallint|integer|bigint|real|double precision|numeric.*)$/, wanted: 'integer' },
}

const REFUSED = 'the table is not touched'

export function jobFindings(profile: Profile, catalog: CatalogTable | null): Finding[] {
  const { table } = profile
  const error = (place: string, what: string, mend: string | null, follows = REFUSED): Finding => ({
    level: 'error',
    table,
    place,
    what,
    follows,
    mend,
  })
  if (!catalog) {
    const mend = 'run bun run migrate, or name your tables in REAPER_TABLES or LEASEHOLD_TABLES'
    return [error('table', `there is no table ${table}`, mend)]
  }
  const findings: Finding[] = []
  for (const [key, column] of Object.entries(profile.columns) as [ColumnKey, string | null][]) {
    if (column === null) continue
    const found = catalog.columns.get(column)
    const type = COLUMN_TYPES[key]
    const place = `columns.${key}`
    if (!found) {
      const hint = hintAt(column, catalog.columns.keys())
      const isOurs = key !== 'id' && key !== 'status'
      const mend = isOurs
        ? 'run bun run migrate (bun run migrate --print shows the SQL), or set it to null in the profile'
        : `name the column of ${table} that holds it`
      findings.push(error(place, `column ${column} is missing${hint}`, mend))
    } else if (type && !type.fits.test(found.type)) {
      const mend = `alter table ${quotedTable(table)} alter column ${quoteName(column)} type ${type.wanted}${converted(column, found.type, type.wanted)}`
      const follows = found.type.startsWith('timestamp')
        ? `without a zone its times could be off by hours; ${REFUSED}`
        : REFUSED
      findings.push(error(place, `column ${column} is ${found.type}, expected ${type.wanted}`, mend, follows))
    } else if (!found.canUpdate && key !== 'id' && catalog.canUpdate) {
      findings.push(
        error(place, `not allowed to write ${column}`, `grant update on ${quotedTable(table)} to current_user`),
      )
    }
  }
  findings.push(...statusProblems(profile, catalog).map(({ what, mend }) => error('statuses', what, mend)))
  const { id } = profile.columns
  if (catalog.columns.has(id) && !catalog.uniqueColumns.has(id)) {
    const mend = `create unique index concurrently on ${quotedTable(table)} (${quoteName(id)})`
    findings.push(
      error('columns.id', `column ${id} is not unique by itself`, mend, 'one claim could take two rows; it is refused'),
    )
  }
  if (!catalog.canSelect || !catalog.canUpdate) {
    findings.push(error('table', 'not allowed', `grant select, update on ${quotedTable(table)} to current_user`))
  }
  if (catalog.hidesRows) {
    findings.push(
      error(
        'table',
        'row-level security hides rows from us',
        'use a role with bypassrls, or a policy for it',
        'a pass would find nothing and look healthy',
      ),
    )
  }
  return findings
}

/** A plain `type` clause cannot turn text into a number by itself. */
function converted(column: string, from: string, to: string): string {
  if (to === 'timestamptz') return from.startsWith('timestamp') ? ` using ${quoteName(column)} at time zone 'utc'` : ''
  return ` using ${quoteName(column)}::${to}`
}

interface Problem {
  what: string
  mend: string | null
}

function statusProblems(profile: Profile, catalog: CatalogTable): Problem[] {
  const column = catalog.columns.get(profile.columns.status)
  if (!column) return []
  const room = Number(/^character varying\((\d+)\)$/.exec(column.type)?.[1] ?? Infinity)
  return Object.entries(profile.statuses).flatMap(([status, word]): Problem[] => {
    if (column.words && !column.words.includes(word)) {
      const hint = hintAt(word, column.words)
      const rename = `write the word it uses into statuses.${status} (it knows ${column.words.join(', ')})`
      return [
        {
          what: `status ${word} is not in the enum${hint}`,
          mend: `alter type ${column.type} add value ${quoteLiteral(word)}, or ${rename}`,
        },
      ]
    }
    if (word.length > room) return [{ what: `status ${word} does not fit into ${column.type}`, mend: null }]
    const against = catalog.checks.find(
      ({ columns, definition }) =>
        columns.length === 1 &&
        columns[0] === profile.columns.status &&
        /=/.test(definition) &&
        !definition.includes(quoteLiteral(word)),
    )
    return against
      ? [
          {
            what: `status ${word} breaks the constraint ${against.name}: ${against.definition.slice(0, 200)}`,
            mend: `write the word it allows into statuses.${status}`,
          },
        ]
      : []
  })
}

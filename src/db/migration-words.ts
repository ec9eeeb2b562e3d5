/** What the words in braces of `migrations/` stand for, for one profile. */
import { createHash } from 'node:crypto'

import { type CatalogTable, quotedTable } from './catalog.ts'
import { eventsViewOf, siblingOf } from './events-home.ts'
import { SHOWN_LENGTH } from './job-filter.ts'
import type { Profile } from './profile.ts'
import { quoteLiteral, quoteName } from './sql.ts'

/** A word that is null leaves its statement out. `plain` is for guards, which name things without quotes. */
export type Words = Record<string, { sql: string; plain: string } | null>

export function wordsFor(
  profile: Profile,
  catalog: CatalogTable | null,
  options: { maxAttempts: number; eventJobIdType: string },
): Words {
  const { columns, events, statuses } = profile
  const name = (column: string | null | undefined): Words[string] =>
    column === null || column === undefined ? null : { sql: quoteName(column), plain: column }
  const table = (of: string | undefined): Words[string] =>
    of === undefined ? null : { sql: quotedTable(of), plain: of }
  const text = (sql: string): Words[string] => ({ sql, plain: sql })
  const index = (of: string | undefined): Words[string] =>
    of === undefined ? null : text(quoteName(`idx_${shortened(bare(of))}_job_id`))
  // Quoted by the statement itself, together with what stands around it.
  const indexName = shortened(bare(profile.table))
  return {
    ...Object.fromEntries(Object.entries(columns).map(([key, column]) => [key, name(column)])),
    table: table(profile.table),
    name: { sql: indexName.replaceAll('"', '""'), plain: indexName },
    createdAt: name(profile.createdAt),
    updatedAt: name(profile.updatedAt),
    queued: text(quoteLiteral(statuses.queued)),
    processing: text(quoteLiteral(statuses.processing)),
    failed: text(quoteLiteral(statuses.failed)),
    max_attempts: text(String(options.maxAttempts)),
    scanned: name(columns.leaseExpiresAt ?? columns.heartbeatAt ?? columns.startedAt ?? columns.id),
    due_at: text(dueAt(profile, catalog)),
    failed_by: text(failedBy(profile, catalog)),
    events: table(events?.table),
    event_job: name(events?.jobId),
    event_data: name(events?.data),
    event_job_id: text(options.eventJobIdType),
    events_index: index(events?.table),
    sibling: table(events ? siblingOf(events.table) : undefined),
    sibling_index: index(events ? siblingOf(events.table) : undefined),
    events_all: table(events ? eventsViewOf(events.table) : undefined),
  }
}

/** By what dead letters are found. Never the whole of a text: an index refuses a row with more than some thousand characters of it. */
function failedBy({ columns }: Profile, catalog: CatalogTable | null): string {
  const code = columns.failCode
  if (code === null) return quoteName(columns.id)
  const isText = /^(text|character varying)/.test(catalog?.columns.get(code)?.type ?? 'text')
  return isText ? `left(${quoteName(code)}::text, ${SHOWN_LENGTH})` : quoteName(code)
}

/** Null when the text names something this profile does not have. */
export function fill(text: string, words: Words, form: 'sql' | 'plain'): string | null {
  let isComplete = true
  const filled = text.replaceAll(/\{(\w+)\}/g, (_, key: string) => {
    if (!Object.hasOwn(words, key)) throw new Error(`a migration has a word nobody knows: {${key}}`)
    const word = words[key]
    if (!word) isComplete = false
    return word?.[form] ?? ''
  })
  return isComplete ? filled : null
}

/** The order of claims, as an index can hold it: as the dialect computes it. */
function dueAt({ columns, createdAt, table }: Profile, catalog: CatalogTable | null): string {
  const type = catalog ? catalog.columns.get(createdAt ?? '')?.type : 'timestamp with time zone'
  const isKnown = createdAt !== null && (type ?? '').endsWith('with time zone')
  const parts = [columns.nextRunAt, isKnown ? createdAt : null].filter((each) => each !== null).map(quoteName)
  if (parts.length === 0) return quoteName(columns.id)
  return parts.length === 1 ? (parts[0] ?? table) : `coalesce(${parts.join(', ')})`
}

function bare(table: string): string {
  return table.split('.').at(-1) ?? table
}

/** Index names are cut at 63 bytes; two that differ only behind the cut would be one. */
function shortened(name: string): string {
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  return Buffer.byteLength(name) > 40 ? `${name.slice(0, 30)}_${hash}` : name
}

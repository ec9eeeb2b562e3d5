/** What `attach` found, as plain text for a terminal. */
import type { DryRun } from '../db/dry-run.ts'
import { DRY_RUN_LIMIT } from '../db/dry-run.ts'
import type { Finding } from '../db/finding.ts'
import { duration } from '../job/duration.ts'
import { RULE_WORDS } from '../job/recovery.ts'
import type { Attachment } from './attach.ts'
import type { JobTableLike } from './attach-tables.ts'
import type { Guess } from './guess.ts'
import { columns } from './text.ts'

export function attachmentText({ table, entry, profile, guesses, sql, dryRun, findings }: Attachment): string {
  const known = profile ? `${table} is described already; nothing is guessed` : null
  const parts = [
    section(`Guesses about ${table}`, guessLines(guesses)),
    section('What stands against it', findings.map(findingLine)),
    section('Entry for the file of tables', entry ? [JSON.stringify(entry, null, 2)] : known ? [known] : []),
    profile && section('SQL', sql.length > 0 ? sql.map((each) => `${each};`) : ['-- nothing is missing']),
    dryRun && section('What the reaper would do right now', dryRunLines(dryRun)),
  ]
  return parts.filter(Boolean).join('\n')
}

export function tablesText(tables: readonly JobTableLike[]): string {
  return columns(tables.map(({ table, statusColumn, words }) => [table, statusColumn, words.join(', ')]))
    .map((line) => `${line}\n`)
    .join('')
}

function section(title: string, lines: string[]): string {
  return lines.length === 0 ? '' : `${title}\n\n${lines.map(indented).join('\n')}\n`
}

function indented(text: string): string {
  return text.replaceAll(/^(?=.)/gm, '  ')
}

function guessLines(guesses: readonly Guess[]): string[] {
  return columns(guesses.map(({ place, chosen, sureness, why }) => [place, chosen ?? '–', sureness, why]))
}

function findingLine({ level, what, follows, mend }: Finding): string {
  return `${level}: ${what}; ${follows}${mend === null ? '' : `\n  ${mend}`}`
}

function dryRunLines(run: DryRun): string[] {
  const lines = run.groups.flatMap(({ rule, outcome, count, examples }) => [
    `${count}${count >= DRY_RUN_LIMIT ? ' or more' : ''} ${outcome}: ${rule} (${RULE_WORDS[rule]})`,
    ...columns(
      examples.map(({ id, holder, attempt, silentSec, overdueSec }) => [
        `  ${id}`,
        `held by ${holder ?? 'nobody known'}`,
        `attempt ${attempt}`,
        silentSec === null ? '' : `last sign of life ${duration(silentSec)} ago`,
        overdueSec === null ? '' : `due since ${duration(overdueSec)}`,
      ]),
    ),
  ])
  if (run.groups.length === 0) lines.push('nothing: no job has run out of time')
  if (run.isCut) lines.push(`counting stopped at ${DRY_RUN_LIMIT}; there may be more`)
  lines.push(`${run.leftAlone} of ${run.processing} processing left alone`)
  if (run.ungoverned > 0) lines.push(`${run.ungoverned} of them tell no age; they get a lease first`)
  if (run.undispatched > 0)
    lines.push(`${run.undispatched} of ${run.queued} queued have waited for too long; they are reported`)
  return lines
}

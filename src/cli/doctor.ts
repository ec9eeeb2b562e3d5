/** The doctor's findings as text: errors first, each with what follows and what mends it. */
import type { Finding } from '../db/finding.ts'

const TITLES: Record<Finding['level'], string> = { error: 'ERROR', warning: 'WARNING', note: 'note' }

export function renderFindings(findings: readonly Finding[], tables: readonly string[]): string {
  const blocks = findings.map(
    ({ level, table, place, what, follows, mend }) =>
      `${TITLES[level]}  ${[table, place].filter((part) => part !== null).join(' › ')}\n` +
      `  what:    ${indented(what)}\n` +
      `  follows: ${indented(follows)}\n` +
      (mend === null ? '' : `  mend:    ${indented(mend)}\n`),
  )
  return [...blocks, `${summary(findings, tables)}\n`].join('\n')
}

function summary(findings: readonly Finding[], tables: readonly string[]): string {
  const count = (level: Finding['level'], word: string): string => {
    const found = findings.filter((finding) => finding.level === level).length
    return `${found} ${word}${found === 1 ? '' : 's'}`
  }
  const refused = new Set(findings.filter(({ level }) => level === 'error').map(({ table }) => table))
  const fit = refused.has(null) ? [] : tables.filter((table) => !refused.has(table))
  const verdict = fit.length === 0 ? 'No table can be used.' : `Fit: ${fit.join(', ')}.`
  return `${verdict} ${count('error', 'error')}, ${count('warning', 'warning')}, ${count('note', 'note')}.`
}

/** SQL may have many lines; text from a table must not paint the terminal. */
function indented(text: string): string {
  const harmless = text.replaceAll(/[^\P{Cc}\n]/gu, '�')
  return harmless.split('\n').join('\n           ')
}

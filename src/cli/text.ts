/** Plain text for a terminal: aligned columns, and nothing from a row that could paint it. */

import { UNSEEN } from '../job/shell-word.ts'

/** What could paint a terminal becomes visible; what is too long is cut. */
export function harmless(text: string, max = 200): string {
  // Cut first: a text of megabytes costs nothing then. What is replaced keeps its length.
  const start = text.length > max ? `${text.slice(0, max - 1).replace(/[\uD800-\uDBFF]$/, '')}…` : text
  return start.replaceAll(UNSEEN, '�')
}

/** For texts of our own with lines of their own. */
export function harmlessLines(text: string): string {
  return text
    .split('\n')
    .map((line) => line.replaceAll(UNSEEN, '�'))
    .join('\n')
}

/** How many cells of a terminal a text takes: two for each East Asian letter, none for a combining mark. */
export function widthOf(text: string): number {
  return Bun.stringWidth(text)
}

/** Cut to so many cells, with an ellipsis. */
export function cutTo(text: string, cells: number): string {
  if (widthOf(text) <= cells) return text
  let kept = ''
  let width = 1
  for (const letter of text) {
    width += widthOf(letter)
    if (width > cells) break
    kept += letter
  }
  return `${kept}…`
}

export function padTo(text: string, cells: number): string {
  return text + ' '.repeat(Math.max(0, cells - widthOf(text)))
}

/** Aligned on the widest cell of each column. */
export function columns(rows: readonly string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => widthOf(row[at] ?? ''))))
  return rows.map((row) =>
    row
      .map((cell, at) => padTo(cell, widths[at] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

/** Rows as a table: aligned and cut to its width for a terminal, whole and with tabs for a pipe. */
import type { Style } from './output.ts'
import { cutTo, harmless, padTo, widthOf } from './text.ts'

export interface Column<Row> {
  title: string
  value: (row: Row) => string
  style?: (row: Row) => Style | null
  /** Right-aligned. */
  isNumber?: boolean
  /** Never cut: somebody wants to copy it. */
  isWhole?: boolean
  /** Left out on a terminal where all rows say the same. */
  isTold?: 'when it differs'
}

const GAP = '  '
const NARROWEST = 8

interface Paint {
  width: number
  paint: (style: Style, text: string) => string
}

export function terminalTable<Row>(
  all: readonly Column<Row>[],
  rows: readonly Row[],
  { width, paint }: Paint,
): string[] {
  const columns = all
    .map((column) => ({ ...column, cells: rows.map((row) => harmless(column.value(row))) }))
    .filter(({ cells, isTold }) => cells.some((cell) => cell !== '') && !(isTold && new Set(cells).size === 1))
  const widths = fit(
    columns.map(({ title, cells }) => Math.max(widthOf(title), ...cells.map(widthOf))),
    columns.map(({ isWhole }) => isWhole ?? false),
    width > 0 ? width : 120,
  )
  const line = (texts: string[], painted: (text: string, at: number) => string): string =>
    texts
      .map((text, at) => {
        const cells = widths[at] ?? 0
        const cut = cutTo(text, cells)
        const room = padTo('', cells - widthOf(cut))
        return columns[at]?.isNumber ? room + painted(cut, at) : painted(cut, at) + (at < texts.length - 1 ? room : '')
      })
      .join(GAP)
      .trimEnd()
  const header = line(
    columns.map(({ title }) => title),
    (text) => paint('dim', text),
  )
  const body = rows.map((row, index) =>
    line(
      columns.map(({ cells }) => cells[index] ?? ''),
      (text, at) => {
        const style = columns[at]?.style?.(row)
        return style ? paint(style, text) : text
      },
    ),
  )
  return [header, ...body]
}

/** Without titles, widths or ellipsis: `cut`, `awk` and `xargs` read this. A cell never holds a tab or a new line. */
export function tabbed<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): string[] {
  return rows.map((row) => columns.map(({ value }) => harmless(value(row), 4000)).join('\t'))
}

/** Takes from the widest column that may be cut until the line fits. */
function fit(widths: number[], isWhole: boolean[], room: number): number[] {
  const fitted = [...widths]
  const total = (): number => fitted.reduce((sum, each) => sum + each, 0) + GAP.length * (fitted.length - 1)
  while (total() > room) {
    const at = fitted.reduce(
      (widest, each, index) =>
        !isWhole[index] && each > NARROWEST && (widest === -1 || each > (fitted[widest] ?? 0)) ? index : widest,
      -1,
    )
    if (at === -1) break
    fitted[at] = (fitted[at] ?? 0) - 1
  }
  return fitted
}

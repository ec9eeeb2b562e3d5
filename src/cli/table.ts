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
  /** On a terminal left out where all rows say the same, or where there is no room for it. The last such goes first. */
  isTold?: 'when it differs' | 'when there is room'
}

const GAP = '  '
const NARROWEST = 8
const UNKNOWN_WIDTH = 120

interface Paint {
  width: number
  paint: (style: Style, text: string) => string
}

export function terminalTable<Row>(
  given: readonly Column<Row>[],
  rows: readonly Row[],
  { width, paint }: Paint,
): string[] {
  const room = width > 0 ? width : UNKNOWN_WIDTH
  const columns = thoseWithRoom(filled(given, rows).filter(saysSomething), room)
  const widths = fit(columns, room)
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

interface Filled<Row> extends Column<Row> {
  cells: string[]
  widest: number
}

function filled<Row>(columns: readonly Column<Row>[], rows: readonly Row[]): Filled<Row>[] {
  return columns.map((column) => {
    const cells = rows.map((row) => harmless(column.value(row)))
    return { ...column, cells, widest: Math.max(widthOf(column.title), ...cells.map(widthOf)) }
  })
}

function saysSomething<Row>({ cells, isTold }: Filled<Row>): boolean {
  return cells.some((cell) => cell !== '') && !(isTold === 'when it differs' && new Set(cells).size === 1)
}

function thoseWithRoom<Row>(columns: Filled<Row>[], room: number): Filled<Row>[] {
  const narrowest = columns.map(({ widest, isWhole }) => (isWhole ? widest : Math.min(widest, NARROWEST)))
  if (lineWidth(narrowest) <= room) return columns
  const spare = columns.findLastIndex(({ isTold }) => isTold === 'when there is room')
  const least = spare === -1 ? columns.findLastIndex(({ isTold }) => isTold === 'when it differs') : spare
  return least === -1 ? columns : thoseWithRoom(columns.toSpliced(least, 1), room)
}

/** Takes from the widest column that may be cut until the line fits. */
function fit<Row>(columns: readonly Filled<Row>[], room: number): number[] {
  const widths = columns.map(({ widest }) => widest)
  while (lineWidth(widths) > room) {
    const cuttable = widths.map((width, at) => (columns[at]?.isWhole || width <= NARROWEST ? 0 : width))
    const widest = Math.max(...cuttable)
    if (widest <= 0) break
    const at = cuttable.indexOf(widest)
    widths[at] = widest - 1
  }
  return widths
}

function lineWidth(widths: readonly number[]): number {
  return widths.reduce((sum, each) => sum + each, 0) + GAP.length * (widths.length - 1)
}

/** Where a command's words go: data on standard output, everything else on standard error. Painted only on a terminal. */
import { styleText } from 'node:util'

import { safeJson } from './json.ts'
import { type Column, terminalTable, tabbed } from './table.ts'
import { harmlessLines } from './text.ts'

export type Style = 'green' | 'yellow' | 'red' | 'bold' | 'dim'

export interface Output {
  isJson: boolean
  /** Standard output is a terminal, and a person reads it. */
  isTerminal: boolean
  /** Lines of data. */
  print: (text: string) => void
  /** One object, with the version of its shape in front. */
  json: (value: object) => void
  /** The same in one line, for streams. */
  jsonLine: (value: object) => void
  /** Aligned on a terminal; elsewhere one line per row with tabs between the cells and no header. What continues a table has none either. */
  table: <Row>(columns: readonly Column<Row>[], rows: readonly Row[], options?: { isContinued?: boolean }) => void
  /** A line for the person waiting. */
  say: (line: string) => void
  paint: (style: Style, text: string) => string
  /** The reader has gone (`| head -1`). */
  readerGone: AbortSignal
  /** Whether anything was printed or said so far. */
  hasSpoken: () => boolean
  /** Resolves when all is written. */
  flushed: () => Promise<void>
}

export const JSON_VERSION = 1

export function createOutput({ isJson, hasColour }: { isJson: boolean; hasColour: boolean }): Output {
  const isTerminal = process.stdout.isTTY && !isJson
  const gone = new AbortController()
  let written = Promise.resolve()
  let hasSpoken = false
  // The reader may go at any time; that is no failure of ours.
  process.stdout.on('error', () => gone.abort())
  process.stderr.on('error', () => undefined)

  function print(text: string): void {
    hasSpoken = true
    if (gone.signal.aborted) return
    const ended = Promise.withResolvers<void>()
    process.stdout.write(text, () => ended.resolve())
    written = ended.promise
  }

  const paint = (style: Style, text: string): string =>
    isTerminal && hasColour ? styleText(style, text, { validateStream: false }) : text

  return {
    isJson,
    isTerminal,
    print,
    json: (value) => print(`${safeJson({ version: JSON_VERSION, ...value }, 2)}\n`),
    jsonLine: (value) => print(`${safeJson({ version: JSON_VERSION, ...value })}\n`),
    table(columns, rows, { isContinued = false } = {}) {
      if (rows.length === 0) return
      const [header = '', ...body] = terminalTable(columns, rows, { width: process.stdout.columns, paint })
      const aligned = isContinued ? body : [header, ...body]
      const lines = isTerminal ? aligned : tabbed(columns, rows)
      print(`${lines.join('\n')}\n`)
    },
    say(line) {
      hasSpoken = true
      process.stderr.write(`${harmlessLines(line)}\n`)
    },
    paint,
    readerGone: gone.signal,
    hasSpoken: () => hasSpoken,
    flushed: () => written,
  }
}

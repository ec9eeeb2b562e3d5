/** Plain text for a terminal: aligned columns, and nothing from a row that could paint it. */

/** Control characters (ANSI among them) become visible; what is too long is cut. */
export function harmless(text: string, max = 200): string {
  const plain = text.replaceAll(/\p{Cc}/gu, '�').replaceAll(/[\u200E\u200F\u202A-\u202E\u2066-\u2069]/g, '�')
  return plain.length > max ? `${plain.slice(0, max - 1)}…` : plain
}

/** Aligned on the widest cell of each column. */
export function columns(rows: readonly string[][]): string[] {
  const widths = (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)))
  return rows.map((row) =>
    row
      .map((cell, at) => cell.padEnd(widths[at] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}

/** Finds the word somebody probably meant. */

/** The candidate with the fewest changed letters, or null when none is near. */
export function closest(word: string, candidates: Iterable<string>): string | null {
  let best: { candidate: string; distance: number } | null = null
  for (const candidate of candidates) {
    const distance = editDistance(plain(word), plain(candidate))
    if (best === null || distance < best.distance) best = { candidate, distance }
  }
  return best && best.distance <= Math.max(2, Math.floor(word.length / 3)) ? best.candidate : null
}

/** `, did you mean …?` behind a message, or nothing. */
export function hintAt(word: string, candidates: Iterable<string>): string {
  const meant = closest(word, candidates)
  return meant === null ? '' : `, did you mean ${meant}?`
}

/** locked_by, lockedBy and LOCKED_BY are one word in three spellings. */
function plain(word: string): string {
  return word.replaceAll(/[_\s-]/g, '').toLowerCase()
}

function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at)
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[b.length] ?? 0
}

/** A line now and then for a person who waits: none in the first second, and at most one in each that follows. */
import type { Output } from './output.ts'

const EVERY_MS = 1000

export function progress({ say }: Pick<Output, 'say'>): (line: string) => void {
  let lastAt = performance.now()
  return (line) => {
    if (performance.now() - lastAt < EVERY_MS) return
    lastAt = performance.now()
    say(line)
  }
}

/** What is given up may still come to its end while its connection is closed; it is told only once. */
export function once<Words extends unknown[]>(tell: (...words: Words) => void): (...words: Words) => void {
  let isTold = false
  return (...words) => {
    if (!isTold) tell(...words)
    isTold = true
  }
}

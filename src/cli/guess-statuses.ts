/** Which of a table's words stands for which status. A word nobody has seen there is never more than a suggestion. */
import type { Profile } from '../db/profile.ts'
import type { StatusWords } from '../db/survey.ts'
import { type Status, STATUSES } from '../job/status.ts'
import type { Guess } from './guess.ts'
import { rankIn, STATUS_WORDS } from './known-names.ts'

type Words = Partial<Profile['statuses']>

export function guessStatuses(seen: StatusWords | undefined): { statuses: Words; guesses: Guess[] } {
  const known: StatusWords = seen ?? { words: [], isClosed: false, default: null }
  const statuses: Words = {}
  const guesses = STATUSES.map((status) => {
    const guess = guessOne(status, known, Object.values(statuses))
    if (guess.chosen !== null) statuses[status] = guess.chosen
    return guess
  })
  return { statuses, guesses: guesses.map((guess) => (guess.chosen === null ? suggested(guess, statuses) : guess)) }
}

function guessOne(status: Status, { words, isClosed, default: first }: StatusWords, used: string[]): Guess {
  const place = `statuses.${status}`
  const synonyms = STATUS_WORDS[status]
  const counts = new Map(words.map(({ word, rows }) => [word, rows]))
  if (first !== null && !counts.has(first)) counts.set(first, null)
  const found = [...counts.keys()]
    .filter((word) => rankIn(synonyms, word) !== -1 && !used.includes(word) && word.length <= 63)
    // What a new row gets is queued, whatever else is called alike.
    .toSorted(
      (a, b) =>
        Number(status === 'queued' && b === first) - Number(status === 'queued' && a === first) ||
        rankIn(synonyms, a) - rankIn(synonyms, b) ||
        (counts.get(b) ?? 0) - (counts.get(a) ?? 0),
    )
  const [chosen, ...others] = found
  if (chosen === undefined) {
    const why = isClosed ? 'none of the words its type or constraint allows' : 'no such word was found among its rows'
    return { place, chosen: null, why, sureness: 'unsure' }
  }
  const rows = counts.get(chosen) ?? 0
  const source = isClosed
    ? 'its type or constraint allows it'
    : rows > 0
      ? 'found among its rows'
      : 'the default of the column'
  const about = rows > 0 ? `, about ${Math.round(rows)} rows` : ''
  if (others.length === 0) return { place, chosen, why: `${source}${about}`, sureness: 'sure' }
  const why = `${source}${about}; rows that are ${others.join(', ')} are not touched`
  // The default says which of several is the beginning; among several ends or middles only the team knows.
  return { place, chosen, why, sureness: status === 'queued' && chosen === first ? 'sure' : 'likely' }
}

/** A word for the team to correct: not seen, but in the case of those that were. */
function suggested(guess: Guess, statuses: Words): Guess {
  const status = guess.place.replace('statuses.', '') as Status
  const others = Object.values(statuses)
  const isUpper = others.length > 0 && others.every((word) => word === word.toUpperCase())
  const plain = STATUS_WORDS[status].find((word) => !others.includes(word)) ?? status
  const word = isUpper ? plain.toUpperCase() : plain
  statuses[status] = word
  return { ...guess, chosen: word, why: `${guess.why}; ${word} is only a suggestion` }
}

/** The closing score as a person reads it. */
import type { Death, DeathScore, Score, Spread } from './score.ts'
import { inSeconds } from './story.ts'

const DEATH_WORDS: Record<Death, string> = {
  crash: 'worker killed',
  power: 'worker and supervisor killed',
  freeze: 'worker frozen past its lease',
  program: 'ffmpeg killed',
}
const NUMBER = 6
/** Of what broke a promise. */
const SHOWN = 12

export function scoreText(score: Score, paint: (text: string, isGood: boolean) => string): string {
  const { database } = score
  const counted = (count: number, text: string): string => `${String(count).padStart(NUMBER)}  ${text}`
  const promised = (count: number, text: string): string => paint(counted(count, text), count === 0)
  return [
    '',
    'The score, by the witness: triggers in the database, no counters of our own.',
    '',
    counted(score.created, 'clips ordered'),
    counted(score.done, 'done, with a whole file each'),
    ...(score.failed > 0 ? [counted(score.failed, 'failed, with a reason')] : []),
    ...(score.unfinished > 0 ? [promised(score.unfinished, 'not finished in time')] : []),
    promised(score.lost, 'lost'),
    promised(score.ranTwiceUnnoticed, 'run twice unnoticed'),
    counted(score.attemptsLost, `of ${score.attempts} attempts cut off; ${score.recovered} clips done all the same`),
    '',
    ...(score.deaths.length > 0 ? [...deathTable(score.deaths), ''] : []),
    ...(database.restarts > 0 ? [databaseLine(database), ''] : []),
    ...score.breaches.slice(0, SHOWN).map((breach) => paint(`  ✗ ${breach}`, false)),
    ...(score.breaches.length > SHOWN ? [`  … and ${score.breaches.length - SHOWN} more`] : []),
    paint(verdict(score), score.isProven),
    '',
  ].join('\n')
}

function deathTable(deaths: readonly DeathScore[]): string[] {
  const row = (title: string, ...cells: string[]): string =>
    `  ${title.padEnd(34)}${cells.map((cell) => cell.padStart(9)).join('')}`
  const cells = (spread: Spread | null): string[] =>
    spread === null ? ['–', '–'] : [inSeconds(spread.medianMs), inSeconds(spread.worstMs)]
  return [
    `${' '.repeat(48)}queued again     running again`,
    row('From the blow until', 'attempts', 'median', 'worst', 'median', 'worst'),
    ...deaths.map(({ kind, times, attempts, requeued, runningAgain }) =>
      row(`${times} × ${DEATH_WORDS[kind]}`, String(attempts), ...cells(requeued), ...cells(runningAgain)),
    ),
  ]
}

function databaseLine({ restarts, worstDownMs, attemptsRunning, attemptsLost }: Score['database']): string {
  const times = restarts === 1 ? 'once' : `${restarts} times`
  return `  Database restarted ${times}, away for up to ${inSeconds(worstDownMs ?? 0)}: ${attemptsRunning - attemptsLost} of ${attemptsRunning} running clips went on to their end.`
}

function verdict({ isProven, recovered, lost, ranTwiceUnnoticed, unfinished }: Score): string {
  if (isProven) return 'Nothing was lost, and nothing was run twice unnoticed.'
  if (lost + ranTwiceUnnoticed + unfinished > 0) return 'A promise was broken; see above.'
  return recovered === 0 ? 'Nothing had to be recovered yet: let it run a little longer.' : ''
}

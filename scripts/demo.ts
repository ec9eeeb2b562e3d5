/** bun run demo [--seconds N] [--json] [--record FILE]: workers die before your eyes, and no job is lost. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'

import { findFfmpeg } from '../docs/examples/ffmpeg.ts'
import { surviveLostSocketWrites } from '../src/db/crash-filter.ts'
import { PACE, WORKERS } from '../src/demo/pace.ts'
import { openPlace } from '../src/demo/place.ts'
import { type DemoResult, runDemo } from '../src/demo/run.ts'
import { scoreText } from '../src/demo/score-text.ts'
import { createStory } from '../src/demo/story.ts'
import { EXIT_CONFIGURATION } from './support/program.ts'

const USAGE = `bun run demo [--seconds N] [--json] [--record FILE]
  --seconds N     end the day after N seconds; without a terminal after 60, else with Ctrl-C
  --json          the score as JSON on standard output, the story on standard error
  --record FILE   everything the witness saw, one JSON object a line
`
const UNATTENDED_SEC = 60

const { seconds, json, recordFile } = readOptions()
const out = json ? process.stderr : process.stdout
const isTerminal = out.isTTY
const hasColour = isTerminal && !process.env.NO_COLOR && process.env.TERM !== 'dumb'
const paint = (code: number, text: string): string => (hasColour ? `\u001B[${code}m${text}\u001B[0m` : text)
const story = createStory({
  write: (text) => out.write(text),
  isTerminal,
  hasColour,
  width: () => out.columns || 80,
  names: WORKERS,
})
// Somebody who stops reading (`| head`) must not end the day half-way: there is a place to be tidied.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
surviveLostSocketWrites(() => undefined)

const place = openPlace()
process.on('exit', () => {
  story.end()
  place.dropNow()
})
const over = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    // A second one waits for nothing. Whoever closed the terminal does not wait either.
    if (over.signal.aborted || signal === 'SIGHUP') process.exit(signal === 'SIGINT' ? 130 : 143)
    over.abort()
  })
}
const daySec = seconds ?? (isTerminal ? null : UNATTENDED_SEC)
if (daySec !== null) setTimeout(() => over.abort(), Math.max(0, daySec * 1000 - performance.now()))

story.print(`
${paint(1, 'Leasehold')}  Three workers, a reaper, a database, and a bad day.
Heartbeat ${PACE.heartbeatSec} s, lease ${PACE.leaseSec} s, retry after ${PACE.backoffMs / 1000} s. By default it is 10 s, 60 s and 30 s.
${daySec === null ? 'Ctrl-C ends the day and shows the score.' : `The day ends after ${daySec} s; then comes the score.`}
`)
try {
  const result = await runDemo({ place, story, env: plainEnvironment(), ffmpeg: workingFfmpeg(), over: over.signal })
  await place.close()
  report(result)
  process.exit(result.score.isProven ? 0 : 1)
} catch (error) {
  story.end()
  process.stderr.write(`The demo could not go on: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exit(1)
}

function report({ score, dashboard, record }: DemoResult): void {
  story.end()
  story.print(scoreText(score, (text, isGood) => paint(isGood ? 32 : 31, text)))
  if (recordFile !== undefined) writeFileSync(recordFile, record.map((row) => `${JSON.stringify(row)}\n`).join(''))
  if (json) process.stdout.write(`${JSON.stringify({ version: 1, settings: PACE, dashboard, ...score }, null, 2)}\n`)
}

/** What a program needs to run. Settings of yours have no say here, and your database is left alone. */
function plainEnvironment(): Record<string, string> {
  const wanted = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'USER']
  return Object.fromEntries(wanted.flatMap((name) => (process.env[name] ? [[name, process.env[name]]] : [])))
}

/** One that makes a tenth of a second of picture; a broken one is none. */
function workingFfmpeg(): string | null {
  const ffmpeg = findFfmpeg()
  if (ffmpeg === null) return null
  const trial = ['-v', 'error', '-f', 'lavfi', '-i', 'testsrc2=duration=0.1', '-c:v', 'mpeg4', '-f', 'null', '-']
  return spawnSync(ffmpeg, trial, { stdio: 'ignore', timeout: 10_000 }).status === 0 ? ffmpeg : null
}

function readOptions(): { seconds: number | null; json: boolean; recordFile: string | undefined } {
  try {
    const { values } = parseArgs({
      options: {
        seconds: { type: 'string' },
        json: { type: 'boolean', default: false },
        record: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    })
    if (values.help) {
      process.stdout.write(USAGE)
      process.exit(0)
    }
    const { seconds: given, json, record: recordFile } = values
    if (given !== undefined && !/^\d{1,5}$/.test(given))
      throw new Error(`--seconds: expected a number of seconds, got ${given}`)
    return { seconds: given === undefined ? null : Number(given), json, recordFile }
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n${USAGE}`)
    return process.exit(EXIT_CONFIGURATION)
  }
}

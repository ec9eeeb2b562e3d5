/** `prove`: kills real workers on a copy of a table's shape, and says how long recovery takes on this database. */
import { randomBytes } from 'node:crypto'

import type { Database } from '../../db/client.ts'
import { describeError, isConnectionError } from '../../db/errors.ts'
import { inOneLine } from '../../db/finding.ts'
import type { Profile } from '../../db/profile.ts'
import { dropScratch, dropStatement, findScratch, requireCreate } from '../../db/scratch-copy.ts'
import { inspectTable, TableRejected } from '../../db/table.ts'
import { paceOf } from '../../prove/pace.ts'
import { type Proof, prove as proveTable } from '../../prove/prove.ts'
import { type Everyday, everydayOf, figuresOf, sentencesOf } from '../../prove/words.ts'
import { type CommandDefinition, type Context, EXIT } from '../command.ts'
import { TABLE, tableNamed, wholeNumber } from '../options.ts'
import type { Session } from '../session.ts'
import { columns, harmlessLines } from '../text.ts'

interface Options {
  table?: string
  seconds?: number
}

/** Short enough to wait for, long enough to be told from the rest. */
const LEASE_SEC = 3

export const prove: CommandDefinition<Options> = {
  usage: 'prove',
  summary: "kill real workers on a copy of a table's shape: how long recovery takes on this database",
  examples: ['prove --table jobs', 'prove --seconds 60'],
  // The scratch schema has to go, also after Ctrl-C.
  graceMs: 20_000,
  configure: (command) =>
    command
      .option(...TABLE)
      .option('--seconds <n>', `how long a lease lasts in the proof (${LEASE_SEC})`, wholeNumber(3, 3600)),
  async run(context) {
    const { options, open, out, host } = context
    const session = await open({ queryTimeoutSec: 30 })
    const { db, profiles } = session
    const names = profiles.map(({ table }) => table)
    const only = options.table === undefined ? null : tableNamed(options.table, names)
    await requireCreate(db)
    await sayLeftovers(db, context)
    const proofs: (Proven | NotProven)[] = []
    const refused: Refused[] = []
    // One after the other: two proofs at once would slow each other down.
    for (const profile of profiles.filter(({ table }) => only === null || table === only)) {
      const answer = await answerFor(session, context, profile)
      if ('problems' in answer) {
        refused.push(answer)
        out.say(new TableRejected(answer.table, answer.problems).message)
      } else {
        proofs.push(answer)
        if (!out.isJson) out.print(harmlessLines(textOf(answer, db.target)))
      }
    }
    if (out.isJson) out.json({ database: db.target, proofs, refused })
    else if (refused.length > 0) out.say(`${host.call('doctor')} says what mends it.`)
    return refused.length === 0 && proofs.every(({ isProven }) => isProven) ? EXIT.done : EXIT.unwell
  },
}

type Proven = Proof & { isProven: true; everyday: Everyday; sentences: string[] }

interface NotProven {
  table: string
  isProven: false
  why: string
}

interface Refused {
  table: string
  problems: string[]
}

/** What goes wrong on one table does not keep the others from being proven. */
async function answerFor(
  session: Session,
  context: Context<Options>,
  profile: Profile,
): Promise<Proven | NotProven | Refused> {
  const { table } = profile
  try {
    const problems = await problemsOf(session.db, profile)
    if (problems.length > 0) return { table, problems }
    const proof = await inScratch(session, context, profile)
    const everyday = everydayOf(profile, session.config)
    return { ...proof, isProven: true, everyday, sentences: sentencesOf(proof, everyday) }
  } catch (error) {
    if (context.host.stopped.aborted || isConnectionError(error)) throw error
    return { table, isProven: false, why: describeError(error) }
  }
}

/** As the doctor says, but for our rights: nothing is going to be written there. */
async function problemsOf(db: Database, profile: Profile): Promise<string[]> {
  const { findings } = await inspectTable(db, profile)
  const problems = findings.filter(({ level, what }) => level === 'error' && !what.startsWith('not allowed'))
  const { holder, attempts, leaseExpiresAt } = profile.columns
  const isLeased = holder !== null && attempts !== null && leaseExpiresAt !== null
  const noLeases =
    'workers take no leases on it, because its profile lacks the column for holder, attempts or lease end'
  return [...problems.map(inOneLine), ...(isLeased ? [] : [noLeases])]
}

async function inScratch(
  { db, config, url }: Session,
  { options, host, out }: Context<Options>,
  profile: Profile,
): Promise<Proof> {
  const schema = `leasehold_prove_${randomBytes(4).toString('hex')}`
  out.say(
    `The table itself is not touched. Everything happens in a schema that is dropped at the end; if this is killed, do it by hand:\n  ${dropStatement(schema)};`,
  )
  try {
    return await proveTable({
      db,
      profile,
      schema,
      pace: paceOf(options.seconds ?? LEASE_SEC),
      surroundings: { environment: host.environment, url, prepare: config.database.prepare },
      stopped: host.stopped,
      onStep: (step) => out.say(`${profile.table}: ${step} …`),
    })
  } finally {
    await dropScratch(db, schema).catch((error: unknown) => {
      out.say(
        `The scratch schema could not be dropped (${describeError(error)}). Drop it by hand:\n  ${dropStatement(schema)};`,
      )
    })
  }
}

async function sayLeftovers(db: Database, { out }: Context<Options>): Promise<void> {
  const found = await findScratch(db)
  if (found.length === 0) return
  out.say('Scratch schemas of other proofs are here. Unless one is at work right now, drop them:')
  for (const schema of found) out.say(`  ${dropStatement(schema)};`)
}

function textOf(answer: Proven | NotProven, database: string): string {
  if (!answer.isProven) return `Not proven for ${answer.table}: ${answer.why}\n`
  const figures = columns(figuresOf(answer))
  return `Proven for ${answer.table} on ${database}\n\n${figures.map((line) => `  ${line}\n`).join('')}\n${answer.sentences.join('\n')}\n`
}

/** `prove`: kills real workers on a copy of a table's shape, and says how long recovery takes on this database. */
import { randomBytes } from 'node:crypto'

import type { Database } from '../../db/client.ts'
import { describeError } from '../../db/errors.ts'
import { inOneLine } from '../../db/finding.ts'
import type { Profile } from '../../db/profile.ts'
import { dropScratch, dropStatement, findScratch, requireCreate } from '../../db/scratch-copy.ts'
import { inspectTable, TableRejected } from '../../db/table.ts'
import { paceOf } from '../../prove/pace.ts'
import { NotProven, type Proof, prove as proveTable } from '../../prove/prove.ts'
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
    const { options, open, out } = context
    const session = await open({ queryTimeoutSec: 30 })
    const { db, profiles } = session
    const names = profiles.map(({ table }) => table)
    const only = options.table === undefined ? null : tableNamed(options.table, names)
    await requireCreate(db)
    await sayLeftovers(db, context)
    const answers: Answer[] = []
    for (const profile of profiles.filter(({ table }) => only === null || table === only)) {
      const answer = await answerFor(session, context, profile)
      if (!out.isJson) out.print(harmlessLines(textOf(answer, db.target)))
      answers.push(answer)
    }
    if (out.isJson) out.json({ database: db.target, proofs: answers })
    return answers.length > 0 && answers.every(({ isProven }) => isProven) ? EXIT.done : EXIT.unwell
  },
}

type Answer =
  | (Proof & { isProven: true; everyday: Everyday; sentences: string[] })
  | { table: string; isProven: false; why: string; problems: string[] }

/** What does not work on one table does not keep the others from being proven. */
async function answerFor(session: Session, context: Context<Options>, profile: Profile): Promise<Answer> {
  const { config, db } = session
  const { table } = profile
  try {
    await requireShape(db, profile)
    const proof = await inScratch(session, context, profile)
    const everyday = everydayOf(profile, config)
    return { ...proof, isProven: true, everyday, sentences: sentencesOf(proof, everyday) }
  } catch (error) {
    if (error instanceof TableRejected) return { table, isProven: false, why: error.message, problems: error.problems }
    if (error instanceof NotProven || error instanceof NoLeases)
      return { table, isProven: false, why: error.message, problems: [] }
    throw error
  }
}

/** Workers of ours could not take a lease on this table. */
class NoLeases extends Error {}

/** As the doctor does, but for our rights: nothing is going to be written there. */
async function requireShape(db: Database, profile: Profile): Promise<void> {
  const { table, columns: has } = profile
  const { findings } = await inspectTable(db, profile)
  const problems = findings.filter(({ level, what }) => level === 'error' && !what.startsWith('not allowed'))
  if (problems.length > 0) throw new TableRejected(table, problems.map(inOneLine))
  if (has.holder === null || has.attempts === null || has.leaseExpiresAt === null)
    throw new NoLeases(`its profile has no column for holder, attempts or lease end, so workers take no leases on it`)
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

function textOf(answer: Answer, database: string): string {
  if (!answer.isProven) return `Not proven for ${answer.table}: ${answer.why}\n`
  const figures = columns(figuresOf(answer))
  return `Proven for ${answer.table} on ${database}\n\n${figures.map((line) => `  ${line}\n`).join('')}\n${answer.sentences.join('\n')}\n`
}

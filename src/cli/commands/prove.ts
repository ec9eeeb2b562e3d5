/** `prove`: kills real workers on a copy of a table's shape, and says how long recovery takes on this database. */
import { randomBytes } from 'node:crypto'

import type { Database } from '../../db/client.ts'
import { describeError } from '../../db/errors.ts'
import type { Profile } from '../../db/profile.ts'
import { dropScratch, dropStatement, findScratch, requireCreate } from '../../db/scratch-copy.ts'
import { openTable, TableRejected } from '../../db/table.ts'
import { paceOf } from '../../prove/pace.ts'
import { NotProven, type Proof, prove as proveTable } from '../../prove/prove.ts'
import { type Everyday, everydayOf, figuresOf, sentenceOf } from '../../prove/words.ts'
import { type CommandDefinition, type Context, EXIT } from '../command.ts'
import { TABLE, tableNamed, wholeNumber } from '../options.ts'
import type { Session } from '../session.ts'
import { columns } from '../text.ts'

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
      answers.push(await answerFor(session, context, profile))
    }
    if (out.isJson) out.json({ database: db.target, proofs: answers })
    else for (const answer of answers) out.print(textOf(answer, db.target))
    return answers.length > 0 && answers.every(({ isProven }) => isProven) ? EXIT.done : EXIT.unwell
  },
}

type Answer =
  | (Proof & { isProven: true; everyday: Everyday; sentence: string })
  | { table: string; isProven: false; why: string; problems: string[] }

/** What does not work on one table does not keep the others from being proven. */
async function answerFor(session: Session, context: Context<Options>, profile: Profile): Promise<Answer> {
  const { config, db } = session
  const { table } = profile
  try {
    const { columns: has } = (await openTable(db, profile)).profile
    if (has.holder === null || has.attempts === null || has.leaseExpiresAt === null)
      return {
        table,
        isProven: false,
        why: `workers take no leases on ${table}: its profile has no column for holder, attempts or lease end`,
        problems: [],
      }
    const proof = await inScratch(session, context, profile)
    const everyday = everydayOf(profile, config)
    return { ...proof, isProven: true, everyday, sentence: sentenceOf(proof, everyday) }
  } catch (error) {
    if (error instanceof TableRejected) return { table, isProven: false, why: error.message, problems: error.problems }
    if (error instanceof NotProven) return { table, isProven: false, why: error.message, problems: [] }
    throw error
  }
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
  return `Proven for ${answer.table} on ${database}\n\n${figures.map((line) => `  ${line}\n`).join('')}\n${answer.sentence}\n`
}

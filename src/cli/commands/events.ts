/** `events <id>`: what happened to a job, as it was told; with --follow also what happens from now on. */
import { setTimeout as sleep } from 'node:timers/promises'

import { isTransient } from '../../db/errors.ts'
import type { ToldEvent } from '../../db/timeline.ts'
import type { JobDetails } from '../../operator/operator.ts'
import { type CommandDefinition, type Context, EXIT, type Exit } from '../command.ts'
import { eventColumns } from '../event-words.ts'
import { findAll, findOne, sayNowhere } from '../one-job.ts'
import { TABLE } from '../options.ts'
import type { Session } from '../session.ts'
import { harmless } from '../text.ts'

interface Options {
  table?: string
  follow?: boolean
}

export const events: CommandDefinition<Options> = {
  usage: 'events <id>',
  summary: 'what happened to a job; --follow stays until it is done or failed',
  configure: (command) =>
    command.option(...TABLE).option('-f, --follow', 'go on until it is done or failed, or Ctrl-C'),
  async run(context) {
    const { args, options, open, out } = context
    const [id = ''] = args
    const session = await open()
    const found = options.follow ? await only(session, context, id) : await findAll(session, context, id)
    const [first] = found
    if (!first) {
      sayNowhere(session, context, id)
      return EXIT.nothing
    }
    if (options.follow) return follow(session, context, first)
    for (const { job } of found) {
      const timeline = await allTold(session, context, job)
      if (found.length > 1 && out.isTerminal) out.print(`${out.paint('bold', harmless(`${job.table} › ${job.id}`))}\n`)
      tell(context, job, timeline)
      if (timeline.length === 0) out.say(`Nothing has been told of this job in ${job.table} yet.`)
    }
    return EXIT.done
  },
}

/** More than this is not read at once. */
const MOST = 10_000

async function allTold(
  { operator }: Session,
  { out }: Context,
  { table, id }: JobDetails['job'],
): Promise<ToldEvent[]> {
  const told = await operator.events(table, id, MOST)
  if (told.length >= MOST) out.say(`These are the latest ${MOST} events of ${harmless(id)}; older ones are left out.`)
  return told
}

async function only(session: Session, context: Context<Options>, id: string): Promise<JobDetails[]> {
  const job = await findOne(session, context, id)
  return job ? [job] : []
}

/** One line per event, in JSON as well: a stream has no end that could be waited for. */
function tell(
  { out }: Context,
  { table, id, now }: JobDetails['job'],
  told: readonly ToldEvent[],
  isContinued = false,
): void {
  if (out.isJson) for (const event of told) out.jsonLine({ table, id, ...event })
  else out.table(eventColumns(table, out.isTerminal ? now : null), told, { isContinued })
}

const EVERY_MS = 1000

/** Each look reads the status first and the events after it, so that what a final status brought has been told. */
async function follow(session: Session, context: Context<Options>, first: JobDetails): Promise<Exit> {
  const { out, host } = context
  const { table, id } = first.job
  let told: Told = new Map()
  const isOver = AbortSignal.any([host.stopped, out.readerGone])
  let seen: JobDetails | null = { ...first, timeline: await allTold(session, context, first.job) }
  let isAway = false
  out.say('Going on until it is done or failed; Ctrl-C ends this, not the job.')
  while (!isOver.aborted) {
    if (seen === null) {
      out.say(`Job ${harmless(id)} is gone from ${table}.`)
      return EXIT.nothing
    }
    const isContinued = told.size > 0
    const { fresh, counted } = newOnes(seen.timeline, told)
    told = counted
    tell(context, seen.job, fresh, isContinued)
    if (seen.job.status === 'done' || seen.job.status === 'failed') return EXIT.done
    await sleep(EVERY_MS, undefined, { signal: isOver }).catch(() => undefined)
    if (isOver.aborted) break
    try {
      ;[seen = null] = await session.operator.find(id, table)
      if (isAway) out.say('The database is back.')
      isAway = false
    } catch (error) {
      if (!isTransient(error)) throw error
      if (!isAway) out.say('The database does not answer; going on when it is back.')
      isAway = true
    }
  }
  return EXIT.done
}

/** How many events of each kind the last look had. */
type Told = ReadonlyMap<string, number>

/** Events have no number that all tables share: one is new when it was not there so many times at the last look. */
function newOnes(timeline: readonly ToldEvent[], told: Told): { fresh: ToldEvent[]; counted: Told } {
  const counted = new Map<string, number>()
  const fresh = timeline.filter((event) => {
    const key = keyOf(event)
    const times = (counted.get(key) ?? 0) + 1
    counted.set(key, times)
    return times > (told.get(key) ?? 0)
  })
  return { fresh, counted }
}

/** Without its details where it has a time: when much is told, older ones are cut, and are still the same. */
function keyOf({ at, type, details }: ToldEvent): string {
  return JSON.stringify(at === null ? [type, details] : [type, at])
}

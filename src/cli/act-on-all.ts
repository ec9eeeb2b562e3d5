/** Acts on all jobs that match. Without --yes it says how many those are, and the command that does it. */
import { COUNT_CAP } from '../db/look.ts'
import { shellWord } from '../job/shell-word.ts'
import { BULK_STATUS, type BulkAction } from '../operator/operator.ts'
import { type ActingOptions, deedOf } from './acting.ts'
import { type Context, EXIT, type Exit, UsageError } from './command.ts'
import { type FilterOptions, filterOf, tableNamed } from './options.ts'
import { once, progress } from './progress.ts'
import type { Session } from './session.ts'
import { harmless } from './text.ts'

export type BulkOptions = ActingOptions & FilterOptions & { yes?: boolean }

export async function actOnAllMatching(
  session: Session,
  context: Context<BulkOptions>,
  action: BulkAction,
): Promise<Exit> {
  const { out, options, host, ifAbandoned } = context
  const { operator } = session
  const deed = deedOf(context)
  const table = tableMeant(options, operator.tables)
  const filter = { ...filterOf(options), status: BULK_STATUS[action] }
  const matched = await operator.count(table, filter)
  const many = `${matched}${matched >= COUNT_CAP ? ' or more' : ''} ${filter.status} job${matched === 1 ? '' : 's'} in ${table}`
  if (matched === 0) {
    if (out.isJson) out.json({ action, table, matched, moved: 0, refused: [] })
    out.say(`${action}: no ${filter.status} job in ${table} matches.`)
    return EXIT.nothing
  }
  if (!options.yes) {
    if (out.isJson) out.json({ action, table, matched, moved: 0, refused: [] })
    out.say(
      `${action}: ${many} match. Nothing was done; to do it:\n  ${host.call(sameWithYes(action, table, options))}`,
    )
    return EXIT.usage
  }
  const tellProgress = progress(out)
  let refused: readonly { id: string; why: string }[] = []
  let moved = 0
  const tellRefused = (): void => {
    for (const { id, why } of refused)
      out.say(`${action}: ${harmless(id)}: the table refuses it: ${harmless(why, 500)}`)
  }
  // What was done before it stopped stays done, and has to be told.
  const tellStopped = once((more: string) => {
    tellRefused()
    if (out.isJson) out.json({ action, table, matched, moved, refused })
    out.say(`Stopped: ${DONE[action]} ${moved} of ${matched}${more}.`)
  })
  ifAbandoned(() => tellStopped('; what becomes of the batch under way is not known'))
  const answer = await operator
    .actOnAll(action, { table, filter, atMost: matched }, deed, (so, far) => {
      ;[moved, refused] = [so, far]
      tellProgress(`${DONE[action]} ${so} of ${matched}`)
      host.stopped.throwIfAborted()
    })
    .catch((error: unknown) => {
      tellStopped('')
      throw error
    })
  tellRefused()
  if (!answer.ok && refused.length === 0) out.say(`${action}: ${harmless(answer.error, 2000)}`)
  if (out.isJson) out.json({ action, table, matched, moved, refused })
  else out.print(`${DONE[action]} ${moved} of ${many}\n`)
  const others = matched - moved - refused.length
  if (others > 0 && refused.length >= MANY_REFUSED) {
    out.say(`Stopped after ${refused.length} refusals: that is hardly the rows. ${others} were not moved.`)
  } else if (others > 0) out.say('The others have changed meanwhile, or cannot be moved.')
  return moved < matched ? EXIT.unwell : EXIT.done
}

/** As many as the operator puts up with; it tries no further then. */
const MANY_REFUSED = 20

const DONE: Record<BulkAction, string> = { retry: 'retried', cancel: 'cancelled' }

function tableMeant({ table }: BulkOptions, tables: readonly string[]): string {
  if (table !== undefined) return tableNamed(table, tables)
  const [only = ''] = tables
  if (tables.length === 1) return only
  throw new UsageError(`expected --table with it, one of ${tables.join(', ')}`)
}

function sameWithYes(action: BulkAction, table: string, { code, stage, holder, reason, actor }: BulkOptions): string {
  const given = Object.entries({ table, code, stage, holder, reason, actor })
  const options = given.flatMap(([name, value]) => (value === undefined ? [] : [`--${name} ${shellWord(value)}`]))
  return `${action} ${options.join(' ')} --yes`
}

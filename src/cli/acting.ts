/** What every action by hand asks for: who, why, and what was seen. */
import type { Command } from 'commander'

import type { Seen } from '../db/job-filter.ts'
import type { Deed } from '../db/operate.ts'
import { STATUSES } from '../job/status.ts'
import { type Context, UsageError } from './command.ts'
import { TABLE } from './options.ts'

export interface ActingOptions {
  table?: string
  reason?: string
  actor?: string
  seen?: string
}

export function addActing(command: Command): Command {
  return command
    .option(...TABLE)
    .option('--reason <words>', 'why; lands in the events of the job (required)')
    .option('--actor <name>', 'who; the default is user@host')
    .option('--seen <status:attempt>', 'only if it is still so, like processing:2')
}

/** A reason is for the colleague who reads it next week; the dots of an example say nothing. */
export function deedOf({ options, host }: Context<ActingOptions>): Deed {
  const { reason, actor = host.actor } = options
  if (reason === undefined || !/[\p{L}\p{N}]/u.test(reason)) {
    const got = reason === undefined ? 'got none' : `got '${reason}'`
    throw new UsageError(`say why with --reason: expected some words, ${got}`)
  }
  return { actor, reason }
}

export function seenOf({ options, args }: Context<ActingOptions>): Seen | undefined {
  if (options.seen === undefined) return undefined
  const [word = '', attempt = '', ...holder] = options.seen.split(':')
  const status = STATUSES.find((each) => each === word)
  if (!status || !/^\d+$/.test(attempt)) {
    throw new UsageError(`--seen: expected a status and an attempt like processing:2, got ${options.seen}`)
  }
  if (args.length !== 1) throw new UsageError('--seen: expected one id with it, because it tells of one job')
  return { status, attempt: Number(attempt), ...(holder.length > 0 ? { holder: holder.join(':') } : {}) }
}

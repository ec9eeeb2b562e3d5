/** The buttons that change a job, and what each of them means: what will happen, and the same as a command. */
import { useContext } from 'preact/hooks'

import { commandFor, commandForAll } from '../../../operator/command.ts'
import type { Action, BulkAnswer, Job } from '../answers.ts'
import { order } from '../api.ts'
import { type Order, SessionContext } from '../session.ts'

const ACTION_WORDS: Record<Action, { verb: string; effect: string; done: string }> = {
  retry: {
    verb: 'Retry',
    effect: 'It is queued and due at once, with one more attempt allowed if none is left.',
    done: 'Retried',
  },
  cancel: {
    verb: 'Cancel',
    effect: 'It fails with code cancelled. A worker that runs it learns so at its next heartbeat.',
    done: 'Cancelled',
  },
  'end-lease': {
    verb: 'End lease',
    effect:
      'It is taken from its holder as if the lease had run out: requeued after its pause, or failed when no attempt is left.',
    done: 'Lease ended',
  },
}

interface JobActionsProps {
  job: Job
  actions: Action[]
  onDone: () => void
}

export function JobActions({ job, actions, onDone }: JobActionsProps): preact.JSX.Element | null {
  const { session, confirm } = useContext(SessionContext)
  const [first] = actions
  if (first === undefined) return null
  if (!session.hasActions) return <ActionsHint command={orderFor(first, job, onDone).command} />
  return (
    <div class="buttons">
      {actions.map((action) => (
        <button
          type="button"
          key={action}
          class={action === 'retry' ? 'main' : ''}
          onClick={() => confirm(orderFor(action, job, onDone))}
        >
          {ACTION_WORDS[action].verb}
        </button>
      ))}
    </div>
  )
}

/** Made of the job as it is now: the page is renewed behind the window, and what has changed since must not be acted on. */
function orderFor(action: Action, job: Job, onDone: () => void): Order {
  const { table, id, status, attempt, holder } = job
  const { verb, effect, done } = ACTION_WORDS[action]
  return {
    title: `${verb} job ${id}?`,
    effect,
    verb,
    command: commandFor(action, job),
    async send(reason) {
      await order('/api/act', { action, table, id, seen: { status, attempt, holder }, reason })
      onDone()
      return `${done}: job ${id}.`
    },
  }
}

export interface Group {
  action: 'retry' | 'cancel'
  table: string
  filter: { stage?: string | null; code?: string | null; holder?: string | null }
  /** As many as the person is told; more that come meanwhile are left alone. */
  count: number
}

export function BulkButton({ group, onDone }: { group: Group; onDone: () => void }): preact.JSX.Element | null {
  const { session, confirm } = useContext(SessionContext)
  const { action, count } = group
  if (!session.hasActions) return null
  return (
    <button type="button" disabled={count === 0} onClick={() => confirm(orderForAll(group, onDone))}>
      {ACTION_WORDS[action].verb} {count === 1 ? 'this one' : `all ${count}`}
    </button>
  )
}

function orderForAll({ action, table, filter, count }: Group, onDone: () => void): Order {
  const { verb, done } = ACTION_WORDS[action]
  const jobs = `${count} ${action === 'retry' ? 'failed' : 'waiting'} ${count === 1 ? 'job' : 'jobs'} of ${table}`
  const given = Object.entries(filter).filter((pair): pair is [string, string | null] => pair[1] !== undefined)
  const which = given.map(([key, value]) => (value === null ? `no ${key}` : `${key} ${value}`)).join(', ')
  return {
    title: `${verb} ${jobs}${which === '' ? '' : ` with ${which}`}?`,
    effect: BULK_EFFECTS[action],
    verb: `${verb} ${count}`,
    command: commandForAll(action, table, filter),
    async send(reason) {
      const request = { action, table, filter, atMost: count, reason }
      const { moved, refused, why } = await order<BulkAnswer>('/api/act-on-all', request)
      onDone()
      const rest = why === null ? '' : ` ${refused} resisted, the first with: ${why}`
      return `${done}: ${moved} of ${count} jobs.${rest}`
    },
  }
}

const BULK_EFFECTS = {
  retry: 'Each is queued and due at once, with one more attempt allowed if none is left.',
  cancel: 'Each fails with code cancelled.',
} as const

/** Where nothing can be done from here, what to do instead. */
export function ActionsHint({ command }: { command: string }): preact.JSX.Element | null {
  const { session } = useContext(SessionContext)
  if (session.hasActions) return null
  return (
    <p class="hint">
      Actions are off here: start with OPERATOR_TOKEN set to allow them, or do it by command line:
      <code>
        {session.cli} {command}
      </code>
    </p>
  )
}

/** The buttons that change a job: each asks why, says what will happen, and offers the same as a command. */
import { useContext, useState } from 'preact/hooks'

import type { Action, Job } from '../answers.ts'
import { ApiError, order } from '../api.ts'
import { SessionContext } from '../session.ts'
import { Dialog } from './dialog.tsx'
import { fieldsOf } from './fields.ts'
import { SignInDialog } from './sign-in.tsx'

export const ACTION_WORDS: Record<Action, { verb: string; effect: string; done: string }> = {
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

export function JobActions({
  job,
  actions,
  onDone,
}: {
  job: Job
  actions: Action[]
  onDone: () => void
}): preact.JSX.Element | null {
  const [chosen, choose] = useState<Action | null>(null)
  if (actions.length === 0) return null
  const { table, id, status, attempt } = job
  return (
    <Acting
      chosen={chosen}
      onClose={() => choose(null)}
      buttons={actions.map((action) => (
        <button type="button" key={action} class={action === 'retry' ? 'main' : ''} onClick={() => choose(action)}>
          {ACTION_WORDS[action].verb}
        </button>
      ))}
      command={`leasehold ${chosen ?? actions[0]} ${shellWord(id)} --table ${shellWord(table)} --reason "…"`}
      title={chosen === null ? '' : `${ACTION_WORDS[chosen].verb} job ${id}?`}
      effect={chosen === null ? '' : ACTION_WORDS[chosen].effect}
      verb={chosen === null ? '' : ACTION_WORDS[chosen].verb}
      send={async (reason) => {
        await order('/api/act', { action: chosen, table, id, seen: { status, attempt }, reason })
        onDone()
        return `${ACTION_WORDS[chosen ?? 'retry'].done}: job ${id}.`
      }}
    />
  )
}

interface BulkProps {
  action: 'retry' | 'cancel'
  table: string
  filter: { stage?: string | null; code?: string | null; holder?: string | null }
  /** As many as the person is told; more that come meanwhile are left alone. */
  count: number
  onDone: () => void
}

export function BulkAction({ action, table, filter, count, onDone }: BulkProps): preact.JSX.Element {
  const [isOpen, setOpen] = useState(false)
  const { verb } = ACTION_WORDS[action]
  const jobs = `${count} ${action === 'retry' ? 'failed' : 'waiting'} ${count === 1 ? 'job' : 'jobs'} of ${table}`
  const options = Object.entries(filter).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key} ${shellWord(value ?? '')}`],
  )
  return (
    <Acting
      chosen={isOpen ? action : null}
      onClose={() => setOpen(false)}
      buttons={
        <button type="button" disabled={count === 0} onClick={() => setOpen(true)}>
          {verb} {count === 1 ? 'this one' : `all ${count}`}
        </button>
      }
      command={['leasehold', action, '--table', shellWord(table), ...options, '--reason "…" --yes'].join(' ')}
      title={`${verb} ${jobs}?`}
      effect={
        action === 'retry'
          ? 'Each is queued and due at once, with one more attempt allowed if none is left.'
          : 'Each fails with code cancelled.'
      }
      verb={`${verb} ${count}`}
      send={async (reason) => {
        const { moved } = await order<{ moved: number }>('/api/act-on-all', {
          action,
          table,
          filter,
          atMost: count,
          reason,
        })
        onDone()
        return `${ACTION_WORDS[action].done}: ${moved} of ${count} jobs.`
      }}
    />
  )
}

interface ActingProps {
  chosen: Action | null
  onClose: () => void
  buttons: preact.ComponentChildren
  command: string
  title: string
  effect: string
  verb: string
  /** Does it, and answers what to say then. */
  send: (reason: string) => Promise<string>
}

function Acting({ chosen, onClose, buttons, command, title, effect, verb, send }: ActingProps): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  return (
    <div class="acting">
      {session.hasActions ? (
        <div class="buttons">{buttons}</div>
      ) : (
        <p class="hint">
          Actions are off here: start with OPERATOR_TOKEN set to allow them, or do it by command line:
          <code>{command}</code>
        </p>
      )}
      {chosen !== null && session.actor === null && <SignInDialog onClose={onClose} />}
      {chosen !== null && session.actor !== null && (
        <ReasonDialog {...{ title, effect, verb, command, send, onClose }} />
      )}
    </div>
  )
}

function ReasonDialog({
  title,
  effect,
  verb,
  command,
  send,
  onClose,
}: Omit<ActingProps, 'chosen' | 'buttons'>): preact.JSX.Element {
  const { say } = useContext(SessionContext)
  const [problem, setProblem] = useState('')
  const [isBusy, setBusy] = useState(false)
  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    const { reason } = fieldsOf(event)
    if (!reason) return setProblem('Say why: it stands in the job’s events.')
    setBusy(true)
    try {
      say(await send(reason))
      onClose()
    } catch (error) {
      setProblem(error instanceof ApiError ? error.message : String(error))
      setBusy(false)
    }
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stacked" noValidate onSubmit={(event) => void submit(event)}>
        <p>{effect}</p>
        <label>
          Reason
          <textarea name="reason" rows={2} maxLength={500} required />
        </label>
        {problem !== '' && <p role="alert">{problem}</p>}
        <div class="buttons">
          <button class="main" disabled={isBusy}>
            {isBusy ? 'Working…' : verb}
          </button>
          <button type="button" onClick={onClose}>
            Back
          </button>
        </div>
        <details>
          <summary>The same by command line</summary>
          <code>{command}</code>
        </details>
      </form>
    </Dialog>
  )
}

/** One word to a shell, whatever an id or a stage is made of. */
function shellWord(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

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

interface JobActionsProps {
  job: Job
  actions: Action[]
  onDone: () => void
}

export function JobActions({ job, actions, onDone }: JobActionsProps): preact.JSX.Element | null {
  // The job as it was when the window opened: the page goes on being renewed behind it, and what has changed must not be acted on.
  const [chosen, choose] = useState<{ action: Action; job: Job } | null>(null)
  const action = chosen?.action ?? actions[0]
  if (action === undefined) return null
  const { table, id, status, attempt } = chosen?.job ?? job
  const { verb, effect, done } = ACTION_WORDS[action]
  return (
    <Acting
      isChosen={chosen !== null}
      onClose={() => choose(null)}
      buttons={actions.map((each) => (
        <button
          type="button"
          key={each}
          class={each === 'retry' ? 'main' : ''}
          onClick={() => choose({ action: each, job })}
        >
          {ACTION_WORDS[each].verb}
        </button>
      ))}
      command={`bun run cli ${action} ${shellWord(id)} --table ${shellWord(table)} --reason "…"`}
      title={`${verb} job ${id}?`}
      {...{ effect, verb }}
      send={async (reason) => {
        await order('/api/act', { action, table, id, seen: { status, attempt }, reason })
        onDone()
        return `${done}: job ${id}.`
      }}
    />
  )
}

interface BulkProps {
  /** Where the page has a hint of its own for all of them. */
  hasHint?: boolean
  action: 'retry' | 'cancel'
  table: string
  filter: { stage?: string | null; code?: string | null; holder?: string | null }
  /** As many as the person is told; more that come meanwhile are left alone. */
  count: number
  onDone: () => void
}

export function BulkAction(props: BulkProps): preact.JSX.Element {
  const { action, table, filter, onDone, hasHint = true } = props
  /** How many there were when the window opened; null while it is closed. */
  const [shown, show] = useState<number | null>(null)
  const count = shown ?? props.count
  const { verb, done } = ACTION_WORDS[action]
  const which = `${count} ${action === 'retry' ? 'failed' : 'waiting'} ${count === 1 ? 'job' : 'jobs'}`
  const options = Object.entries(filter).flatMap(([key, value]) =>
    value === undefined ? [] : [`--${key} ${shellWord(value ?? '')}`],
  )
  return (
    <Acting
      isChosen={shown !== null}
      hasHint={hasHint}
      onClose={() => show(null)}
      buttons={
        <button type="button" disabled={props.count === 0} onClick={() => show(props.count)}>
          {verb} {props.count === 1 ? 'this one' : `all ${props.count}`}
        </button>
      }
      command={`bun run cli ${[action, '--table', shellWord(table), ...options].join(' ')} --reason "…" --yes`}
      title={`${verb} ${which} of ${table}?`}
      effect={BULK_EFFECTS[action]}
      verb={`${verb} ${count}`}
      send={async (reason) => {
        const request = { action, table, filter, atMost: count, reason }
        const { moved } = await order<{ moved: number }>('/api/act-on-all', request)
        onDone()
        return `${done}: ${moved} of ${count} jobs.`
      }}
    />
  )
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
      <code>{command}</code>
    </p>
  )
}

interface ActingProps {
  hasHint?: boolean
  isChosen: boolean
  onClose: () => void
  buttons: preact.ComponentChildren
  command: string
  title: string
  effect: string
  verb: string
  /** Does it, and answers what to say then. */
  send: (reason: string) => Promise<string>
}

function Acting({
  isChosen,
  onClose,
  buttons,
  command,
  title,
  effect,
  verb,
  send,
  hasHint = true,
}: ActingProps): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  return (
    <div class="acting">
      {session.hasActions && <div class="buttons">{buttons}</div>}
      {hasHint && <ActionsHint command={command} />}
      {isChosen && session.actor === null && <SignInDialog onClose={onClose} />}
      {isChosen && session.actor !== null && <ReasonDialog {...{ title, effect, verb, command, send, onClose }} />}
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
}: Omit<ActingProps, 'isChosen' | 'buttons' | 'hasHint'>): preact.JSX.Element {
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

/** The window in which a person says why and confirms; first who they are, when nobody knows yet. */
import { useContext, useEffect, useRef, useState } from 'preact/hooks'

import { ApiError } from '../api.ts'
import { type Order, SessionContext } from '../session.ts'
import { Dialog } from './dialog.tsx'
import { plain } from './show.tsx'
import { SignInDialog } from './sign-in.tsx'

export function OrderWindow({ order, onClose }: { order: Order; onClose: () => void }): preact.JSX.Element {
  const { session, renew, say } = useContext(SessionContext)
  // Kept here, so that signing in on the way does not cost it.
  const [reason, setReason] = useState('')
  const [problem, setProblem] = useState<ApiError | null>(null)
  const [isBusy, setBusy] = useState(false)
  const isOpen = useRef(true)
  useEffect(() => () => void (isOpen.current = false), [])

  async function submit(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    if (reason.trim() === '') return setProblem(new ApiError('NO_REASON', 'Say why: it stands in the job’s events.'))
    setBusy(true)
    try {
      say(await order.send(reason.trim()))
      // Closed meanwhile, another window may be open by now.
      if (!isOpen.current) return
      onClose()
      // Its button may be gone with the next answer; the heading is not.
      window.setTimeout(() => document.querySelector<HTMLElement>('h1')?.focus())
    } catch (error) {
      await tell(error instanceof ApiError ? error : new ApiError('FAILED', String(error)))
    }
  }

  /** Also when the window was closed meanwhile. */
  async function tell(error: ApiError): Promise<void> {
    if (!isOpen.current) return say(`${order.title} Not done: ${error.message}`)
    setBusy(false)
    setProblem(error)
    // The session is over: who it was asks again, and the reason stays.
    if (error.code === 'NO_TOKEN') await renew()
  }

  if (session.actor === null) return <SignInDialog onClose={onClose} />
  const hasChanged = problem?.code === 'CHANGED'
  return (
    <Dialog title={order.title} onClose={onClose}>
      <form class="stacked" noValidate onSubmit={(event) => void submit(event)}>
        <p>{order.effect}</p>
        <label>
          Reason
          <textarea
            name="reason"
            rows={2}
            maxLength={500}
            required
            value={reason}
            onInput={(event) => {
              setReason(event.currentTarget.value)
              setProblem(null)
            }}
          />
        </label>
        {problem !== null && (
          <p role="alert">
            {plain(problem.message)}
            {hasChanged && '. Nothing was done: close this and look again.'}
          </p>
        )}
        <div class="buttons">
          {!hasChanged && (
            <button class="main" disabled={isBusy}>
              {isBusy ? 'Working…' : order.verb}
            </button>
          )}
          <button type="button" onClick={onClose}>
            Back
          </button>
        </div>
        <details>
          <summary>The same by command line</summary>
          <code>
            {session.cli} {plain(order.command)}
          </code>
        </details>
      </form>
    </Dialog>
  )
}

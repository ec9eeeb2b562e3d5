/** The token, traded once for a cookie that scripts cannot read; and a name for the events. */
import { useContext, useState } from 'preact/hooks'

import { ApiError, order } from '../api.ts'
import { SessionContext } from '../session.ts'
import { Dialog } from './dialog.tsx'
import { fieldsOf } from './fields.ts'

/** Whoever shows it while nobody is signed in need not close it: it goes with the reason for it. */
export function SignInDialog({ onClose }: { onClose: () => void }): preact.JSX.Element {
  const { renew, say } = useContext(SessionContext)
  async function done(): Promise<void> {
    await renew()
    say('Signed in.')
  }
  return (
    <Dialog title="Sign in" onClose={onClose}>
      <SignInForm onDone={() => void done()} onCancel={onClose} />
    </Dialog>
  )
}

export function SignInForm({ onDone, onCancel }: { onDone: () => void; onCancel?: () => void }): preact.JSX.Element {
  const [problem, setProblem] = useState('')
  async function signIn(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    const { token, name } = fieldsOf(event)
    try {
      await order('/api/session', { token, name })
      onDone()
    } catch (error) {
      setProblem(error instanceof ApiError ? error.message : String(error))
    }
  }
  return (
    <form class="stacked" onSubmit={(event) => void signIn(event)}>
      <label>
        Token
        <input name="token" type="password" required autocomplete="current-password" aria-describedby="token-help" />
      </label>
      <small id="token-help">The OPERATOR_TOKEN that the server was started with.</small>
      <label>
        Your name
        <input name="name" maxLength={60} autocomplete="username" placeholder="stands in the events of what you do" />
      </label>
      {problem !== '' && <p role="alert">{problem}</p>}
      <div class="buttons">
        <button class="main">Sign in</button>
        {onCancel && (
          <button type="button" onClick={onCancel}>
            Back
          </button>
        )}
      </div>
    </form>
  )
}

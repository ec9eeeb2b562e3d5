/** Who is looking, and what they may do: known to every part of the page. */
import { createContext } from 'preact'

import type { Session } from './answers.ts'

export interface SessionState {
  session: Session
  /** Asks who we are again, after signing in or out. */
  renew: () => Promise<void>
  /** The server wants a token before it shows anything. */
  refuse: () => void
  /** Says something that a screen reader must not miss. */
  say: (text: string) => void
}

export const NOBODY: Session = { hasActions: false, actor: null, pollSec: 2, tables: [], database: '' }

export const SessionContext = createContext<SessionState>({
  session: NOBODY,
  renew: () => Promise.resolve(),
  refuse: () => undefined,
  say: () => undefined,
})

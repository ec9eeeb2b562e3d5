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
  /** Opens the window in which a person says why, and confirms. It outlives the row it was opened from. */
  confirm: (order: Order) => void
}

/** Something that is to be done, as it was when a person chose it. */
export interface Order {
  title: string
  effect: string
  verb: string
  /** The same for a terminal, behind the program's name. */
  command: string
  /** Does it, and answers what to say then. */
  send: (reason: string) => Promise<string>
}

export const NOBODY: Session = {
  hasActions: false,
  actor: null,
  pollSec: 2,
  tables: [],
  database: '',
  cli: 'bun run cli',
}

export const SessionContext = createContext<SessionState>({
  session: NOBODY,
  renew: () => Promise.resolve(),
  refuse: () => undefined,
  say: () => undefined,
  confirm: () => undefined,
})

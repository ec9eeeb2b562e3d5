/** What stands around every screen: where one can go, the search for a job, who is signed in, and what was just done. */
import type { ComponentChildren } from 'preact'
import { useContext, useState } from 'preact/hooks'

import { go } from '../address.ts'
import type { Found } from '../answers.ts'
import { ApiError, ask, order, withQuery } from '../api.ts'
import { SessionContext } from '../session.ts'
import { fieldsOf } from './fields.ts'
import { SignInDialog } from './sign-in.tsx'

const PLACES = [
  ['/', 'Overview'],
  ['/leases', 'Leases'],
  ['/jobs', 'Jobs'],
  ['/failures', 'Failures'],
  ['/workers', 'Workers'],
  ['/reaper', 'Reaper'],
] as const

export function Frame({
  path,
  said,
  children,
}: {
  path: string
  said: string
  children: ComponentChildren
}): preact.JSX.Element {
  const { session } = useContext(SessionContext)
  return (
    <>
      <a class="skip" href="#content">
        Skip to content
      </a>
      <header>
        <a class="brand" href="/">
          <img src="/icon.svg" alt="" width="22" height="22" /> Leasehold
        </a>
        <nav aria-label="Screens">
          {PLACES.map(([href, title]) => (
            <a
              key={href}
              href={href}
              aria-current={href === path || (href === '/jobs' && path === '/job') ? 'page' : undefined}
            >
              {title}
            </a>
          ))}
        </nav>
        <Search />
        <Visitor />
      </header>
      <main id="content">{children}</main>
      <footer>
        <span>{session.database}</span>
      </footer>
      <div role="status" aria-live="polite" class={said === '' ? 'said empty' : 'said'}>
        {said}
      </div>
    </>
  )
}

function Search(): preact.JSX.Element {
  const { say } = useContext(SessionContext)
  async function find(event: SubmitEvent): Promise<void> {
    event.preventDefault()
    const form = event.currentTarget as HTMLFormElement
    const { id } = fieldsOf(event)
    if (!id) return
    try {
      const found = await ask<Found>(withQuery('/api/find', { id }))
      const [only] = found
      if (!only) return say(`There is no job ${id}.`)
      if (found.length > 1)
        say(
          `${found.length} tables have a job ${id}: ${found.map(({ table }) => table).join(', ')}. This is the first.`,
        )
      else say('')
      go(withQuery('/job', { table: only.table, id }))
      form.reset()
    } catch (error) {
      say(error instanceof ApiError ? error.message : String(error))
    }
  }
  return (
    <form role="search" onSubmit={(event) => void find(event)}>
      <label class="unseen" for="search">
        Job id
      </label>
      <input id="search" name="id" type="search" placeholder="Find a job by id" autocomplete="off" spellcheck={false} />
    </form>
  )
}

function Visitor(): preact.JSX.Element | null {
  const { session, renew } = useContext(SessionContext)
  const [isAsking, setAsking] = useState(false)
  if (!session.hasActions) return null
  if (session.actor === null) {
    return (
      <>
        <button type="button" onClick={() => setAsking(true)}>
          Sign in
        </button>
        {isAsking && <SignInDialog onClose={() => setAsking(false)} />}
      </>
    )
  }
  const signOut = (): Promise<void> => order('/api/session', {}, 'DELETE').then(renew)
  return (
    <span class="visitor">
      {session.actor}{' '}
      <button type="button" onClick={() => void signOut()}>
        Sign out
      </button>
    </span>
  )
}

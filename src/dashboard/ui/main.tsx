/** The dashboard: who is looking, the frame around every screen, and which screen the address asks for. */
import { render } from 'preact'
import { useCallback, useEffect, useErrorBoundary, useMemo, useRef, useState } from 'preact/hooks'

import { useAddress } from './address.ts'
import type { Session } from './answers.ts'
import { ApiError, ask } from './api.ts'
import { forgetAnswers } from './live.ts'
import { FailuresPage } from './pages/failures.tsx'
import { JobPage } from './pages/job.tsx'
import { JobsPage } from './pages/jobs.tsx'
import { LeasesPage } from './pages/leases.tsx'
import { OverviewPage } from './pages/overview.tsx'
import { ReaperPage } from './pages/reaper.tsx'
import { WorkersPage } from './pages/workers.tsx'
import { Frame } from './parts/frame.tsx'
import { HealthLine } from './parts/health-line.tsx'
import { SignInForm } from './parts/sign-in.tsx'
import { OrderWindow } from './parts/order-window.tsx'
import { NOBODY, type Order, SessionContext } from './session.ts'

interface Screen {
  title: string
  show: (query: URLSearchParams) => preact.JSX.Element
}

const OVERVIEW: Screen = { title: 'Overview', show: () => <OverviewPage /> }
const SCREENS: Record<string, Screen> = {
  '/': OVERVIEW,
  '/leases': { title: 'Leases', show: (query) => <LeasesPage query={query} /> },
  '/jobs': { title: 'Jobs', show: (query) => <JobsPage query={query} /> },
  '/job': { title: 'Job', show: (query) => <JobPage table={query.get('table') ?? ''} id={query.get('id') ?? ''} /> },
  '/failures': { title: 'Failures', show: () => <FailuresPage /> },
  '/workers': { title: 'Workers', show: () => <WorkersPage /> },
  '/reaper': { title: 'Reaper', show: () => <ReaperPage /> },
}

/** How long a word about what was just done stays. */
const SAID_MS = 8000

/** An old page may meet a new server: the new page understands it. */
function reload(mend: () => void): void {
  mend()
  window.location.reload()
}

function App(): preact.JSX.Element {
  const { path, query } = useAddress()
  const [session, setSession] = useState<Session | null>(null)
  const [problem, setProblem] = useState<ApiError | null>(null)
  const [said, say] = useState('')
  const heading = useRef<HTMLHeadingElement>(null)
  const screen = SCREENS[path] ?? OVERVIEW
  const [order, setOrder] = useState<Order | null>(null)
  const [broken, mend] = useErrorBoundary()

  const renew = useCallback(async () => {
    try {
      const now = await ask<Session>('/api/session')
      setSession((last) => {
        if (last?.actor !== now.actor) forgetAnswers()
        return now
      })
      setProblem(null)
    } catch (error) {
      setProblem(error instanceof ApiError ? error : new ApiError('FAILED', String(error)))
    }
  }, [])
  useEffect(() => void renew(), [])
  useEffect(() => {
    const isWaiting = session === null && problem !== null && problem.code !== 'NO_TOKEN'
    const timer = isWaiting ? window.setTimeout(() => void renew(), 2000) : 0
    return () => window.clearTimeout(timer)
  }, [problem])
  // A new screen begins at its heading, also for somebody who does not see it.
  const isFirst = useRef(true)
  useEffect(() => {
    const id = path === '/job' ? ` ${query.get('id') ?? ''}` : ''
    document.title = `${screen.title}${id} – Leasehold`
    if (!isFirst.current) heading.current?.focus()
    isFirst.current = false
  }, [path])

  const refuse = useCallback(() => setProblem(new ApiError('NO_TOKEN', 'Sign in to go on.')), [])
  const state = useMemo(() => ({ session: session ?? NOBODY, renew, refuse, say, confirm: setOrder }), [session])
  useEffect(() => {
    const timer = window.setTimeout(() => say(''), SAID_MS)
    return () => window.clearTimeout(timer)
  }, [said])
  return (
    <SessionContext.Provider value={state}>
      <Frame path={path} said={said}>
        <h1 tabIndex={-1} ref={heading} class={path === '/' || path === '/job' ? 'quiet' : ''}>
          {problem?.code === 'NO_TOKEN' ? 'Sign in' : screen.title}
        </h1>
        {broken ? (
          <p role="alert">
            This page and the server do not understand each other.{' '}
            <button onClick={() => reload(mend)}>Load it anew</button>
          </p>
        ) : problem?.code === 'NO_TOKEN' ? (
          <SignInForm onDone={() => void renew()} />
        ) : problem !== null && session === null ? (
          <p role="alert">{problem.message}</p>
        ) : session === null ? (
          <p>Looking…</p>
        ) : (
          <>
            {path !== '/' && <HealthLine />}
            {screen.show(query)}
          </>
        )}
      </Frame>
      {order !== null && <OrderWindow key={order.title} order={order} onClose={() => setOrder(null)} />}
    </SessionContext.Provider>
  )
}

render(<App />, document.getElementById('app') as HTMLElement)

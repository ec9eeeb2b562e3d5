/** The dashboard: who is looking, the frame around every screen, and which screen the address asks for. */
import { render } from 'preact'
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'

import { useAddress } from './address.ts'
import type { Session } from './answers.ts'
import { ApiError, ask } from './api.ts'
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
import { NOBODY, SessionContext } from './session.ts'

const SCREENS: Record<string, { title: string; show: (query: URLSearchParams) => preact.JSX.Element }> = {
  '/': { title: 'Overview', show: () => <OverviewPage /> },
  '/leases': { title: 'Leases', show: (query) => <LeasesPage query={query} /> },
  '/jobs': { title: 'Jobs', show: (query) => <JobsPage query={query} /> },
  '/job': { title: 'Job', show: (query) => <JobPage table={query.get('table') ?? ''} id={query.get('id') ?? ''} /> },
  '/failures': { title: 'Failures', show: () => <FailuresPage /> },
  '/workers': { title: 'Workers', show: () => <WorkersPage /> },
  '/reaper': { title: 'Reaper', show: () => <ReaperPage /> },
}

function App(): preact.JSX.Element {
  const { path, query } = useAddress()
  const [session, setSession] = useState<Session | null>(null)
  const [problem, setProblem] = useState<ApiError | null>(null)
  const [said, say] = useState('')
  const heading = useRef<HTMLHeadingElement>(null)
  const screen = SCREENS[path] ?? {
    title: 'No such page',
    show: () => (
      <p>
        The dashboard begins at <a href="/">the overview</a>.
      </p>
    ),
  }

  const renew = useCallback(async () => {
    try {
      setSession(await ask<Session>('/api/session'))
      setProblem(null)
    } catch (error) {
      setProblem(error instanceof ApiError ? error : new ApiError('FAILED', String(error)))
    }
  }, [])
  useEffect(() => void renew(), [])
  useEffect(() => {
    const isWaiting = session === null && problem?.code === 'NO_ANSWER'
    const timer = isWaiting ? window.setTimeout(() => void renew(), 2000) : 0
    return () => window.clearTimeout(timer)
  }, [problem])
  // A new screen begins at its heading, also for somebody who does not see it.
  const isFirst = useRef(true)
  useEffect(() => {
    document.title = `${screen.title} – Leasehold`
    if (!isFirst.current) heading.current?.focus()
    isFirst.current = false
  }, [path])

  const refuse = useCallback(() => setProblem(new ApiError('NO_TOKEN', 'Sign in to go on.')), [])
  const state = useMemo(() => ({ session: session ?? NOBODY, renew, refuse, say }), [session])
  return (
    <SessionContext.Provider value={state}>
      <Frame path={path} said={said}>
        <h1 tabIndex={-1} ref={heading} class={path === '/' || path === '/job' ? 'quiet' : ''}>
          {problem?.code === 'NO_TOKEN' ? 'Sign in' : screen.title}
        </h1>
        {problem?.code === 'NO_TOKEN' ? (
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
    </SessionContext.Provider>
  )
}

render(<App />, document.getElementById('app') as HTMLElement)

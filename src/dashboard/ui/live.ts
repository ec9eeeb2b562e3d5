/** Keeps an answer fresh: asks again every few seconds, rests while nobody looks, and keeps the last good answer when one fails. */
import { useCallback, useContext, useEffect, useState } from 'preact/hooks'

import { ApiError, ask } from './api.ts'
import { SessionContext } from './session.ts'

export interface Live<T> {
  /** The last good answer; null until there is one. */
  data: T | null
  /** What the last question ran into; null when it was answered. */
  error: ApiError | null
  /** Asks at once. */
  refresh: () => void
}

interface Kept<T> {
  path: string
  data: T | null
  error: ApiError | null
}

/** The last answers: going back shows a screen as it was, and its place on it, before it is renewed. */
const remembered = new Map<string, unknown>()
const MOST_REMEMBERED = 20

/** Who was signed in is not; what they saw goes with them. */
export function forgetAnswers(): void {
  remembered.clear()
}

function remember(path: string, data: unknown): void {
  remembered.delete(path)
  remembered.set(path, data)
  const [oldest] = remembered.keys()
  if (remembered.size > MOST_REMEMBERED && oldest !== undefined) remembered.delete(oldest)
}

/** `patience`: how many times longer than usual an answer is good for. */
export function useLive<T>(path: string, patience = 1): Live<T> {
  const { session, refuse } = useContext(SessionContext)
  const [kept, keep] = useState<Kept<T> | null>(null)
  const [round, setRound] = useState(0)
  const pollMs = session.pollSec * patience * 1000

  useEffect(() => {
    const gone = new AbortController()
    let timer = 0
    let isAsking = false
    async function look(): Promise<void> {
      // One question at a time, so that no older answer comes after a newer one.
      if (document.hidden || isAsking) return
      isAsking = true
      try {
        const data = await ask<T>(path, gone.signal)
        if (gone.signal.aborted) return
        remember(path, data)
        keep({ path, data, error: null })
      } catch (error) {
        if (gone.signal.aborted || !(error instanceof ApiError)) return
        if (error.code === 'NO_TOKEN') refuse()
        keep((last) => ({ path, data: last?.path === path ? last.data : (lastAnswer(path) as T | null), error }))
      }
      isAsking = false
      timer = window.setTimeout(() => void look(), pollMs)
    }
    const onVisible = (): void => {
      window.clearTimeout(timer)
      void look()
    }
    document.addEventListener('visibilitychange', onVisible)
    void look()
    return () => {
      gone.abort()
      window.clearTimeout(timer)
      document.removeEventListener('visibilitychange', onVisible)
    }
  }, [path, pollMs, round, session.actor])

  const refresh = useCallback(() => setRound((last) => last + 1), [])
  const mine = kept?.path === path ? kept : { data: lastAnswer(path) as T | null, error: null }
  return { data: mine.data, error: mine.error, refresh }
}

function lastAnswer(path: string): unknown {
  return remembered.get(path) ?? null
}

/** Shows the page anew every second, so that what runs down is seen to run down between two answers. */
export function useSeconds(): void {
  const [, tick] = useState(0)
  useEffect(() => {
    const timer = window.setInterval(() => document.hidden || tick((last) => last + 1), 1000)
    return () => window.clearInterval(timer)
  }, [])
}

/** The server's clock, carried on from its last answer: this machine's own may be wrong. */
export function useServerClock(now: string | undefined): number {
  const [known, setKnown] = useState({ now, at: performance.now() })
  if (known.now !== now) setKnown({ now, at: performance.now() })
  return now === undefined ? Date.now() : Date.parse(now) + performance.now() - known.at
}

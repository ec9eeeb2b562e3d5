/**
 * Who may see and do what over HTTP. On loopback everybody may look; anywhere else, and for every action, it takes the
 * token, or the cookie a browser got for it. A token that is unset allows no action at all.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import { isIP } from 'node:net'

import { refusal, type ServiceResult, success } from '../result.ts'
import { createSessions } from './session.ts'

export interface AccessOptions {
  /** The address we listen on. */
  host: string
  token: string | null
  /** Further names we answer to. */
  hosts: readonly string[]
}

export interface Visitor {
  /** Who stands in the event of an action; null for somebody who may only look. */
  actor: string | null
}

export type AccessCode = 'WRONG_HOST' | 'CROSS_SITE' | 'NO_TOKEN' | 'WRONG_TOKEN' | 'ACTIONS_OFF'

export interface Access {
  /** Whether actions are possible at all. */
  hasActions: boolean
  /** A page of somebody else's may point its own name at our address: names nobody told us of get nothing. */
  checkHost(request: Request): ServiceResult<null, AccessCode>
  /** Who is asking, and whether they may look. */
  visitor(request: Request): ServiceResult<Visitor, AccessCode>
  /** The same for something that changes a job: never sent by another site's page. */
  actor(request: Request): ServiceResult<string, AccessCode>
  /** The cookie for a token that is right. */
  signIn(request: Request, token: string, name: string): ServiceResult<string, AccessCode>
  signOut(request: Request): string
}

const SESSION_SEC = 12 * 3600

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d+\.\d+\.\d+$/.test(host)
}

/** Why the dashboard must not be served like this, in words for the person who starts it; null when it may. */
export function accessFault({ host, token }: Pick<AccessOptions, 'host' | 'token'>): string | null {
  if (isLoopback(host) || token !== null) return null
  return `HTTP_HOST: expected a loopback address because OPERATOR_TOKEN is not set, got ${JSON.stringify(host)} (set OPERATOR_TOKEN to a secret of your own, e.g. from openssl rand -hex 24, or remove HTTP_HOST to use 127.0.0.1)`
}

export function createAccess({ host, token, hosts }: AccessOptions): Access {
  const names = new Set(['localhost', host.toLowerCase(), ...hosts])
  const sessions = token === null ? null : createSessions(token, SESSION_SEC)

  function identify(request: Request): ServiceResult<Visitor & { byCookie: boolean }, AccessCode> {
    const given = bearerOf(request)
    if (given !== null) {
      if (token === null || !isSame(given, token)) return WRONG_TOKEN
      return success({ actor: 'token', byCookie: false })
    }
    const session = sessions?.read(request) ?? null
    return success({ actor: session?.name ?? null, byCookie: session !== null })
  }

  return {
    hasActions: token !== null,
    checkHost(request) {
      const name = hostNameOf(request)
      if (name !== null && (isIP(name) !== 0 || names.has(name))) return success(null)
      return refusal('WRONG_HOST', `this name is not ours; tell it in OPERATOR_HOSTS if it should be`)
    },
    visitor(request) {
      if (isFromAnotherSite(request)) return CROSS_SITE
      const who = identify(request)
      if (!who.ok || who.value.actor !== null || isLoopback(host)) return who
      return NO_TOKEN
    },
    actor(request) {
      if (token === null) return ACTIONS_OFF
      const who = identify(request)
      if (!who.ok) return who
      const { actor, byCookie } = who.value
      if (actor === null) return NO_TOKEN
      if (!isFromOurPage(request, byCookie)) return CROSS_SITE
      return success(actor)
    },
    signIn(request, given, name) {
      if (sessions === null || token === null) return ACTIONS_OFF
      if (!isFromOurPage(request, true)) return CROSS_SITE
      return isSame(given, token) ? success(sessions.start(request, name)) : WRONG_TOKEN
    },
    // Only for somebody who has one: the name of the cookie comes from the token.
    signOut: (request) => (sessions?.read(request) ? sessions.end(request) : ''),
  }
}

const WRONG_TOKEN = refusal('WRONG_TOKEN', 'this is not the OPERATOR_TOKEN of this server')
const NO_TOKEN = refusal('NO_TOKEN', 'this needs the OPERATOR_TOKEN: sign in, or send it as a bearer token')
const CROSS_SITE = refusal('CROSS_SITE', 'this must come from the dashboard itself, not from another site')
const ACTIONS_OFF = refusal('ACTIONS_OFF', 'actions are off: set OPERATOR_TOKEN and start again to allow them')

function bearerOf(request: Request): string | null {
  return /^Bearer +(\S+) *$/i.exec(request.headers.get('authorization') ?? '')?.[1] ?? null
}

function hostNameOf(request: Request): string | null {
  try {
    return new URL(`http://${request.headers.get('host') ?? ''}`).hostname.replaceAll(/^\[|\]$/g, '')
  } catch {
    return null
  }
}

/** Browsers say where a request comes from. With a cookie they must: it is sent along whoever asks. */
function isFromOurPage(request: Request, byCookie: boolean): boolean {
  if (isFromAnotherSite(request)) return false
  const origin = request.headers.get('origin')
  if (origin === null) return !byCookie
  try {
    // A default port may be said or left out.
    const { protocol, host } = new URL(origin)
    return host === new URL(`${protocol}//${request.headers.get('host') ?? ''}`).host
  } catch {
    return false
  }
}

/** By the browser's own word. What a person typed or bookmarked comes from no site. */
function isFromAnotherSite(request: Request): boolean {
  return !['same-origin', 'none'].includes(request.headers.get('sec-fetch-site') ?? 'none')
}

/** Takes the same time whatever is wrong with it. */
function isSame(given: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest()
  return timingSafeEqual(digest(given), digest(token))
}

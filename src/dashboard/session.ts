/** The cookie a browser gets for the token: signed with it, so that nothing has to be remembered and a new token ends them all. */
import { createHmac, timingSafeEqual } from 'node:crypto'

import { cleanText } from '../job/failure.ts'

export interface Session {
  /** How the person wants to be called in the events. */
  name: string
}

export interface Sessions {
  /** The Set-Cookie header of a new session. */
  start(request: Request, name: string): string
  end(request: Request): string
  read(request: Request): Session | null
}

const MAX_NAME = 60

export function createSessions(token: string, lastsSec: number): Sessions {
  const sign = (text: string): string => createHmac('sha256', token).update(text).digest('base64url')
  // Browsers share cookies between the ports of a host: two dashboards must not sign each other out.
  const cookie = `leasehold_${sign('name of the cookie')
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, 8)}`

  function header(request: Request, value: string, maxAgeSec: number): string {
    const secure = request.headers.get('x-forwarded-proto') === 'https' ? '; Secure' : ''
    return `${cookie}=${value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeSec}${secure}`
  }

  return {
    start(request, name) {
      const until = Math.floor(Date.now() / 1000) + lastsSec
      const called = cleanText(name, MAX_NAME) || 'dashboard'
      const content = Buffer.from(JSON.stringify({ name: called, until })).toString('base64url')
      return header(request, `${content}.${sign(content)}`, lastsSec)
    },
    end: (request) => header(request, '', 0),
    read(request) {
      const [content, signature] = cookieOf(request, cookie)?.split('.') ?? []
      if (content === undefined || signature === undefined || !isEqual(signature, sign(content))) return null
      const { name, until } = JSON.parse(Buffer.from(content, 'base64url').toString()) as {
        name: string
        until: number
      }
      return until > Date.now() / 1000 ? { name } : null
    },
  }
}

function cookieOf(request: Request, name: string): string | undefined {
  const pairs = (request.headers.get('cookie') ?? '').split(';').map((pair) => pair.trim().split('='))
  return pairs.find(([key]) => key === name)?.[1]
}

function isEqual(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

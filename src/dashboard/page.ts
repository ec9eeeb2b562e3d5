/** The page itself: its script is bundled when somebody first looks, in memory, so there is nothing to build or to deploy. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'

import type { Log } from '../telemetry/log.ts'

const FOLDER = join(import.meta.dirname, 'ui')
/** Everything the page needs comes from us, and nothing of it stands in the document. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')
export const PAGE_HEADERS = {
  'content-security-policy': POLICY,
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
}

/** The addresses under which the one document is served; its script decides what to show. */
export const SCREENS = ['/', '/leases', '/jobs', '/job', '/failures', '/workers', '/reaper'] as const

interface Asset {
  body: string
  type: string
  tag: string
}

export interface Page {
  /** Null for a path that is not the page's. */
  answer(request: Request, path: string): Promise<Response | null>
}

export function createPage(log: Log): Page {
  let bundled: Promise<Map<string, Asset>> | null = null

  return {
    async answer(request, path) {
      const name = (SCREENS as readonly string[]).includes(path) ? '/index.html' : path
      if (!ASSETS.includes(name)) return null
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        return new Response('expected GET\n', { status: 405, headers: { allow: 'GET, HEAD' } })
      }
      try {
        bundled ??= bundle()
        const asset = (await bundled).get(name)
        return asset ? show(asset, request) : null
      } catch (error) {
        bundled = null
        const why = error instanceof AggregateError ? error.errors.map(String).join('\n') : String(error)
        log.error({ error: why }, 'the page could not be put together')
        return new Response(`The page could not be put together: ${why}\nAre all packages installed?\n`, {
          status: 500,
        })
      }
    },
  }
}

const ASSETS: readonly string[] = ['/index.html', '/app.js', '/style.css', '/icon.svg']

function show({ body, type, tag }: Asset, request: Request): Response {
  // A new version must show at once, an old one need not be sent again.
  const headers = { ...PAGE_HEADERS, 'content-type': type, etag: tag, 'cache-control': 'no-cache' }
  if (request.headers.get('if-none-match') === tag) return new Response(null, { status: 304, headers })
  return new Response(body, { headers })
}

async function bundle(): Promise<Map<string, Asset>> {
  const built = await Bun.build({
    entrypoints: [join(FOLDER, 'main.tsx')],
    target: 'browser',
    minify: true,
  })
  const [script] = built.outputs
  if (!script) throw new Error('the bundler made nothing')
  const file = (name: string): Promise<string> => Bun.file(join(FOLDER, name)).text()
  return new Map([
    ['/index.html', asset(await file('index.html'), 'text/html; charset=utf-8')],
    ['/app.js', asset(await script.text(), 'text/javascript; charset=utf-8')],
    ['/style.css', asset(await file('style.css'), 'text/css; charset=utf-8')],
    ['/icon.svg', asset(await file('icon.svg'), 'image/svg+xml')],
  ])
}

function asset(body: string, type: string): Asset {
  return { body, type, tag: `"${createHash('sha256').update(body).digest('base64url').slice(0, 20)}"` }
}

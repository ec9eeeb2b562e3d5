/** The JSON behind the page. Reading is open to whoever may look; every change is guarded by what the person saw. */
import type { z } from 'zod'

import type { SettingInForce } from '../config/describe.ts'
import { describeError, isConnectionError, isTimeout } from '../db/errors.ts'
import { TableRejected } from '../db/table.ts'
import { type ActCode, type Operator, UnknownTable } from '../operator/operator.ts'
import { refusal, type ServiceResult, success } from '../result.ts'
import type { Log } from '../telemetry/log.ts'
import type { Access, AccessCode, Visitor } from './access.ts'
import { type Cache, createCache } from './cache.ts'
import type { PassLog } from './passes.ts'
import { filterOf, ORDERS, queryOf, QUESTIONS, understand } from './questions.ts'

export interface ApiOptions {
  operator: Operator
  access: Access
  /** The passes of the reaper in this process; null when there is none. */
  passes: PassLog | null
  settings: readonly SettingInForce[]
  database: string
  /** How a person calls the command line here. */
  cli: string
  /** How long running jobs may go on at a deploy: what the plan of a drain is made for. */
  shutdownTimeoutSec: number
  log: Log
}

type Code =
  | AccessCode
  | ActCode
  | 'NOT_UNDERSTOOD'
  | 'NO_SUCH_TABLE'
  | 'TABLE_REFUSED'
  | 'DATABASE_AWAY'
  | 'TOO_SLOW'
  | 'FAILED'
  | 'BROKE_OFF'
  | 'NO_SUCH_PATH'
  | 'NOT_JSON'
type Answer = ServiceResult<unknown, Code>

const HTTP_STATUS: Record<Code, number> = {
  WRONG_HOST: 421,
  CROSS_SITE: 403,
  NO_TOKEN: 401,
  WRONG_TOKEN: 401,
  ACTIONS_OFF: 403,
  NOT_FOUND: 404,
  NOT_ALLOWED: 409,
  CHANGED: 409,
  NO_REASON: 422,
  NOT_UNDERSTOOD: 422,
  NOT_JSON: 415,
  NO_SUCH_PATH: 404,
  NO_SUCH_TABLE: 404,
  TABLE_REFUSED: 409,
  DATABASE_AWAY: 503,
  TOO_SLOW: 503,
  FAILED: 500,
  BROKE_OFF: 503,
}

/** How often a page asks again; the server says so, so that all pages can be made more patient at once. */
const POLL_SEC = 2
/** Ten tabs cost the database what one does. */
const KEEP_MS = 1000

type Read = (query: Record<string, string>, visitor: Visitor) => Promise<Answer>
type Write = (body: unknown, actor: string) => Promise<Answer>

export interface Api {
  answer(request: Request, url: URL): Promise<Response>
  paths: readonly string[]
}

export function createApi(options: ApiOptions): Api {
  const { access, log } = options
  const cache = createCache(KEEP_MS)
  const reads = readsOf(options, cache)
  const writes = writesOf(options.operator)

  async function answerRead(read: Read, request: Request, url: URL): Promise<Answer> {
    const visitor = access.visitor(request)
    return visitor.ok ? read(queryOf(url), visitor.value) : visitor
  }

  async function answerWrite(write: Write, request: Request): Promise<Answer> {
    const actor = access.actor(request)
    if (!actor.ok) return actor
    const body = await readJson(request)
    if (!body.ok) return body
    try {
      return await write(body.value, actor.value)
    } finally {
      // Also when it broke off: something may have been done.
      cache.clear()
    }
  }

  async function answer(request: Request, url: URL): Promise<Response> {
    const method = request.method === 'HEAD' ? 'GET' : request.method
    const path = url.pathname
    if (path === '/api/session' && method !== 'GET') return answerSession(request, method)
    const [read, write] = [reads[path], writes[path]]
    if (!read && !write) return toResponse(refusal('NO_SUCH_PATH', `there is no ${path} here`))
    const [wanted, allowed] = read ? ['GET', 'GET, HEAD'] : ['POST', 'POST']
    if (method !== wanted) return notAllowed(allowed)
    try {
      return toResponse(read ? await answerRead(read, request, url) : await answerWrite(write as Write, request))
    } catch (error) {
      return toResponse(explainError(error, log))
    }
  }

  async function answerSession(request: Request, method: string): Promise<Response> {
    if (method === 'DELETE') return withCookie(toResponse(success({})), access.signOut(request))
    if (method !== 'POST') return notAllowed('GET, HEAD, POST, DELETE')
    const body = await readJson(request)
    const order = body.ok ? understand(ORDERS.signIn, body.value) : body
    if (!order.ok) return toResponse(order)
    const signedIn = access.signIn(request, order.value.token, order.value.name)
    if (!signedIn.ok) {
      if (signedIn.code === 'WRONG_TOKEN') log.warn({}, 'sign-in refused: wrong token')
      return toResponse(signedIn)
    }
    return withCookie(toResponse(success({})), signedIn.value)
  }

  return { answer, paths: ['/api/session', ...Object.keys(reads), ...Object.keys(writes)] }
}

function readsOf(
  { operator, access, passes, settings, database, cli, shutdownTimeoutSec }: ApiOptions,
  cache: Cache,
): Record<string, Read> {
  /** Checks the question, then asks; the same question within a second is answered from memory. */
  const asks =
    <T>(name: string, schema: z.ZodType<T>, ask: (question: T) => Promise<unknown>): Read =>
    async (query) => {
      const question = understand(schema, query)
      if (!question.ok) return question
      return success(await cache.get(`${name} ${JSON.stringify(question.value)}`, () => ask(question.value)))
    }
  const { nothing } = QUESTIONS
  return {
    '/api/session': (_, { actor }) =>
      Promise.resolve(
        success({ hasActions: access.hasActions, actor, pollSec: POLL_SEC, tables: operator.tables, database, cli }),
      ),
    '/api/overview': asks('overview', nothing, async () => ({
      ...(await operator.overview()),
      history: operator.history(),
    })),
    '/api/leases': asks('leases', QUESTIONS.leases, async ({ table, holder }) => ({
      leases: await operator.leases({
        ...(table === undefined ? {} : { table }),
        ...(holder === undefined ? {} : { holder }),
      }),
    })),
    '/api/jobs': asks('jobs', QUESTIONS.jobs, ({ table, after, ...filter }) =>
      operator.jobs(table, { filter: filterOf(filter), after: after ?? null }),
    ),
    '/api/count': asks('count', QUESTIONS.count, async ({ table, ...filter }) => ({
      count: await operator.count(table, filterOf(filter)),
    })),
    '/api/find': asks('find', QUESTIONS.find, async ({ id }) =>
      (await operator.find(id)).map(({ job: { table, status, word } }) => ({ table, id, status, word })),
    ),
    '/api/failures': asks('failures', nothing, () => operator.failures()),
    '/api/workers': asks('workers', nothing, () => operator.workers()),
    '/api/reaper': asks('reaper', nothing, () =>
      Promise.resolve({
        now: new Date(),
        latest: passes?.latest() ?? null,
        eventful: passes?.eventful() ?? null,
        settings,
      }),
    ),
    '/api/preview': asks('preview', QUESTIONS.preview, async ({ table }) => ({ rows: await operator.dryRun(table) })),
    '/api/drain': asks('drain', nothing, () => operator.drain(shutdownTimeoutSec)),
    '/api/job': async (query) => {
      const question = understand(QUESTIONS.job, query)
      if (!question.ok) return question
      const { table, id } = question.value
      const [found] = await cache.get(`job ${JSON.stringify([table, id])}`, () => operator.find(id, table))
      return found ? success(found) : refusal('NOT_FOUND', `there is no job ${id} in ${table}`)
    },
  }
}

function writesOf(operator: Operator): Record<string, Write> {
  return {
    '/api/act': async (body, actor) => {
      const order = understand(ORDERS.act, body)
      if (!order.ok) return order
      const { action, reason, ...job } = order.value
      return operator.act(action, job, { actor, reason })
    },
    '/api/act-on-all': async (body, actor) => {
      const order = understand(ORDERS.actOnAll, body)
      if (!order.ok) return order
      const { action, reason, ...which } = order.value
      let sofar = { moved: 0, refused: 0, why: null as string | null }
      try {
        const moved = await operator.actOnAll(action, which, { actor, reason }, (done, refused) => {
          sofar = { moved: done, refused: refused.length, why: refused[0]?.why ?? null }
        })
        return moved.ok ? success({ ...sofar, moved: moved.value }) : moved
      } catch (error) {
        if (sofar.moved === 0) throw error
        return refusal('BROKE_OFF', `${sofar.moved} jobs were moved, then: ${describeError(error)}`)
      }
    },
  }
}

async function readJson(request: Request): Promise<ServiceResult<unknown, 'NOT_JSON' | 'NOT_UNDERSTOOD'>> {
  // A form of another site cannot send this type without asking first.
  if (!/^application\/json\b/i.test(request.headers.get('content-type') ?? '')) {
    return refusal('NOT_JSON', 'expected content-type: application/json')
  }
  try {
    return success(JSON.parse(await request.text()) as unknown)
  } catch {
    return refusal('NOT_UNDERSTOOD', 'the body is not JSON')
  }
}

function explainError(error: unknown, log: Log): Answer {
  if (error instanceof UnknownTable) return refusal('NO_SUCH_TABLE', error.message)
  if (error instanceof TableRejected) return refusal('TABLE_REFUSED', error.message)
  if (isTimeout(error)) return refusal('TOO_SLOW', `the database took too long: ${describeError(error)}`)
  if (isConnectionError(error)) return refusal('DATABASE_AWAY', `the database does not answer: ${describeError(error)}`)
  log.error({ error: describeError(error) }, 'a question of the dashboard failed')
  return refusal('FAILED', describeError(error))
}

function toResponse(answer: Answer): Response {
  const status = answer.ok ? 200 : HTTP_STATUS[answer.code]
  const body = answer.ok ? answer.value : { code: answer.code, error: answer.error }
  return Response.json(body, { status, headers: { 'cache-control': 'no-store' } })
}

function withCookie(response: Response, cookie: string): Response {
  if (cookie !== '') response.headers.set('set-cookie', cookie)
  return response
}

function notAllowed(allow: string): Response {
  return Response.json({ code: 'NOT_ALLOWED', error: `expected ${allow}` }, { status: 405, headers: { allow } })
}

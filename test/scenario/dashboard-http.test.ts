/** The dashboard's HTTP side: who may see and do what, and what happens to everybody who tries something else. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test'
import { connect, type Socket } from 'node:net'

import { startCluster } from '../support/cluster.ts'
import { ask, BEARER, openTestDashboard, type Reply, type TestDashboard, TOKEN } from '../support/dashboard.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { runProgram } from '../support/program.ts'
import { eventTypes, EXPIRED, HELD, insertJob, readEvents, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const FAILED = {
  status: `'failed'`,
  stage: `'clip'`,
  attempt_count: '3',
  fail_code: `'TIMEOUT'`,
  fail_reason: `'slow'`,
}
const READS = [
  'session',
  'overview',
  'leases',
  'jobs?table=jobs',
  'count?table=jobs',
  'find?id=x',
  'failures',
  'workers',
  'reaper',
  'preview?table=jobs',
  'drain',
]
const SCREENS = ['/', '/leases', '/jobs', '/job', '/failures', '/workers', '/reaper']

let database: TestDatabase
let dashboard: TestDashboard

beforeAll(async () => {
  database = await freshDatabase()
  dashboard = openTestDashboard({ db: database.db })
})

afterAll(async () => {
  expect(await brokenInvariants(database.sql)).toEqual([])
  await dashboard[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

function retry(id: string, more: Record<string, unknown> = {}): string {
  return JSON.stringify({
    action: 'retry',
    table: 'jobs',
    id,
    seen: { status: 'failed', attempt: 3 },
    reason: 'again',
    ...more,
  })
}

async function signIn(name = 'Ada'): Promise<{ reply: Reply; cookie: string }> {
  const headers = { 'content-type': 'application/json', origin: dashboard.url }
  const reply = await ask(`${dashboard.url}/api/session`, {
    method: 'POST',
    headers,
    body: JSON.stringify({ token: TOKEN, name }),
  })
  return { reply, cookie: (reply.headers.get('set-cookie') ?? '').split(';')[0] ?? '' }
}

describe('looking', () => {
  test.each(READS)('/api/%s is open on loopback', async (path) => {
    const reply = await ask(`${dashboard.url}/api/${path}`)
    expect(reply.status).toBe(200)
    expect(reply.headers.get('content-type')).toContain('application/json')
    expect(reply.headers.get('cache-control')).toBe('no-store')
  })

  test.each(SCREENS)('%s is the page, which allows nothing but its own files', async (path) => {
    const reply = await ask(dashboard.url + path)
    expect(reply.status).toBe(200)
    const policy = String(reply.headers.get('content-security-policy'))
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain("script-src 'self'")
    expect(policy).not.toContain('unsafe')
    expect(reply.text).not.toMatch(/<script(?![^>]*\ssrc=)|<style|\son\w+=|style=/)
  })

  test('the page is not sent again to a browser that has it', async () => {
    const { headers } = await ask(`${dashboard.url}/app.js`)
    const again = await ask(`${dashboard.url}/app.js`, { headers: { 'if-none-match': String(headers.get('etag')) } })
    expect([again.status, again.text]).toEqual([304, ''])
  })

  test.each([
    '/..%2f..%2fpackage.json',
    '/app.js/..%2f..%2fpackage.json',
    '/%2e%2e/package.json',
    '/ui/main.tsx',
    '/api/../../x',
    '/index.htm',
    '/api/',
    '/api/nothing',
  ])('%s is nothing (Q14)', async (path) => {
    const reply = await ask(dashboard.url + path)
    expect(reply.status).toBe(404)
    expect(reply.text).not.toContain('"dependencies"')
  })

  test('what a question means is checked, and a wrong one says what was expected', async () => {
    const wrong = await ask(`${dashboard.url}/api/jobs?table=jobs&status=broken`)
    expect([wrong.status, wrong.json().error]).toEqual([
      422,
      'status: expected one of queued, processing, done, failed',
    ])
    expect((await ask(`${dashboard.url}/api/jobs?table=jobs&colour=red`)).status).toBe(422)
    expect((await ask(`${dashboard.url}/api/jobs?table=nothing`)).json()).toMatchObject({ code: 'NO_SUCH_TABLE' })
    expect((await ask(`${dashboard.url}/api/job?table=jobs&id=no-uuid`)).json()).toMatchObject({ code: 'NOT_FOUND' })
    expect((await ask(`${dashboard.url}/api/job?table=jobs&id=%00`)).json()).toMatchObject({ code: 'NOT_FOUND' })
  })

  test('secrets are said to be set, and never shown (Q10)', async () => {
    const reply = await ask(`${dashboard.url}/api/reaper`)
    expect(reply.text).toContain('(set, not shown)')
    const pages = await Promise.all(
      [...READS.map((path) => `/api/${path}`), '/metrics'].map((path) => ask(dashboard.url + path)),
    )
    const password = new URL(database.url).password
    for (const { text } of pages) {
      expect(text).not.toContain(TOKEN)
      expect(text).not.toContain(password)
    }
  })
})

describe('doing', () => {
  test('an action needs the token, and a wrong one changes nothing (Q3)', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    const bare = { 'content-type': 'application/json' }
    const attempts: [Record<string, string>, number][] = [
      [bare, 401],
      [{ ...bare, authorization: 'Bearer wrong-wrong-wrong-wrong' }, 401],
      [{ ...bare, authorization: `Basic ${btoa(`x:${TOKEN}`)}` }, 401],
      [{ ...bare, cookie: 'leasehold_x=abc.def' }, 401],
    ]
    for (const [headers, status] of attempts) {
      expect((await ask(`${dashboard.url}/api/act`, { method: 'POST', headers, body: retry(id) })).status).toBe(status)
    }
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({ status: 'failed', attempt_count: 3 })
    expect(await eventTypes(database.sql, id)).toEqual([])
  })

  test('with the token a job is retried: one more attempt allowed, none forgotten, and the event says who and why', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    const reply = await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body: retry(id) })
    expect(reply.status).toBe(200)
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({
      status: 'queued',
      attempt_count: 3,
      max_attempts: 4,
    })
    const [event] = await readEvents(database.sql, id)
    expect(event).toMatchObject({ type: 'operator:retry', details: { actor: 'token', reason: 'again' } })
  })

  test('a browser trades the token for a cookie that no script can read, and its name stands in the event', async () => {
    const { reply, cookie } = await signIn('Ada <b>')
    const setCookie = String(reply.headers.get('set-cookie'))
    for (const part of ['HttpOnly', 'SameSite=Strict', 'Path=/']) expect(setCookie).toContain(part)
    expect(setCookie).not.toContain(TOKEN)
    expect((await ask(`${dashboard.url}/api/session`, { headers: { cookie } })).json()).toMatchObject({
      actor: 'Ada <b>',
    })

    const id = await insertJob(database.sql, 'jobs', FAILED)
    const headers = { 'content-type': 'application/json', cookie, origin: dashboard.url }
    expect((await ask(`${dashboard.url}/api/act`, { method: 'POST', headers, body: retry(id) })).status).toBe(200)
    expect((await readEvents(database.sql, id))[0]).toMatchObject({ details: { actor: 'Ada <b>' } })
    const out = await ask(`${dashboard.url}/api/session`, { method: 'DELETE', headers })
    expect(String(out.headers.get('set-cookie'))).toContain('Max-Age=0')
  })

  test.each([
    ['a cookie that was tampered with', (cookie: string) => cookie.replace('=', '=X')],
    ['a cookie whose signature was cut off', (cookie: string) => cookie.split('.')[0] ?? ''],
  ])('%s is nobody', async (_, spoil) => {
    const { cookie } = await signIn()
    expect((await ask(`${dashboard.url}/api/session`, { headers: { cookie: spoil(cookie) } })).json()).toMatchObject({
      actor: null,
    })
  })

  test('another site cannot act through a browser that is signed in (Q4)', async () => {
    const { cookie } = await signIn()
    const id = await insertJob(database.sql, 'jobs', FAILED)
    const json = { 'content-type': 'application/json', cookie }
    const attempts: [string, Record<string, string>, number][] = [
      ['POST', { ...json, origin: 'https://evil.example' }, 403],
      ['POST', { ...json, origin: 'null' }, 403],
      ['POST', { ...json, origin: dashboard.url, 'sec-fetch-site': 'cross-site' }, 403],
      ['POST', json, 403],
      ['POST', { cookie, origin: dashboard.url, 'content-type': 'text/plain' }, 415],
      ['POST', { cookie, origin: dashboard.url, 'content-type': 'application/x-www-form-urlencoded' }, 415],
      ['GET', { cookie }, 405],
    ]
    for (const [method, headers, status] of attempts) {
      const body = method === 'POST' ? retry(id) : undefined
      expect((await ask(`${dashboard.url}/api/act`, { method, headers, body })).status, JSON.stringify(headers)).toBe(
        status,
      )
    }
    const login = await ask(`${dashboard.url}/api/session`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: 'https://evil.example' },
      body: JSON.stringify({ token: TOKEN, name: '' }),
    })
    expect(login.status).toBe(403)
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({ status: 'failed' })
  })

  test('a stale page cannot act on a job that has changed', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    expect((await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body: retry(id) })).status).toBe(
      200,
    )
    const late = await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body: retry(id) })
    expect(late.json()).toMatchObject({ code: 'CHANGED' })
    expect(late.status).toBe(409)
    const held = await insertJob(database.sql, 'jobs', HELD)
    const seen = { status: 'processing', attempt: 4 }
    const end = await ask(`${dashboard.url}/api/act`, {
      method: 'POST',
      headers: BEARER,
      body: retry(held, { action: 'end-lease', seen }),
    })
    expect(end.status).toBe(409)
    expect(await readJob(database.sql, 'jobs', held)).toMatchObject({ status: 'processing', locked_by: 'live-worker' })
  })

  test('another holder of the same attempt is another run: it is left alone', async () => {
    const id = await insertJob(database.sql, 'jobs', HELD)
    const cancel = (holder: string): string =>
      retry(id, { action: 'cancel', seen: { status: 'processing', attempt: 1, holder } })
    const post = { method: 'POST', headers: BEARER }
    const late = await ask(`${dashboard.url}/api/act`, { ...post, body: cancel('dead-worker') })
    expect(late.json()).toMatchObject({ code: 'CHANGED' })
    expect((await readJob(database.sql, 'jobs', id)).status).toBe('processing')
    expect((await ask(`${dashboard.url}/api/act`, { ...post, body: cancel('live-worker') })).status).toBe(200)
  })

  test('all that match are retried, and no more than were seen', async () => {
    const ids = await Promise.all(
      [1, 2, 3].map(() => insertJob(database.sql, 'jobs', { ...FAILED, fail_code: `'DISK'` })),
    )
    const body = JSON.stringify({
      action: 'retry',
      table: 'jobs',
      filter: { code: 'DISK' },
      atMost: 2,
      reason: 'disk is back',
    })
    const reply = await ask(`${dashboard.url}/api/act-on-all`, { method: 'POST', headers: BEARER, body })
    expect(reply.json()).toEqual({ moved: 2, refused: 0, why: null })
    const states = await Promise.all(ids.map(async (id) => (await readJob(database.sql, 'jobs', id)).status))
    expect(states.toSorted()).toEqual(['failed', 'queued', 'queued'])
  })

  test.each([
    ['no reason', { reason: '  ' }, 'NO_REASON'],
    ['an action nobody knows', { action: 'delete' }, 'NOT_UNDERSTOOD'],
    ['nothing seen', { seen: undefined }, 'NOT_UNDERSTOOD'],
    ['a key nobody knows', { force: true }, 'NOT_UNDERSTOOD'],
    ['a table nobody knows', { table: 'users' }, 'NO_SUCH_TABLE'],
    ['an id that fits no column', { id: "1' or true --" }, 'NOT_FOUND'],
  ])('%s is refused in words and changes nothing', async (_, more, code) => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    const reply = await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body: retry(id, more) })
    expect(reply.json()).toMatchObject({ code, error: expect.any(String) })
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({ status: 'failed' })
  })

  test.each(['{', '', 'null', '[]', '"x"', '{"__proto__":{"action":"retry"}}', '[['.repeat(5000)])(
    'the body %# is refused (Q15)',
    async (body) => {
      const reply = await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body })
      expect(reply.status).toBe(422)
      expect(({} as Record<string, unknown>).action).toBeUndefined()
    },
  )

  test('without a token set, actions are off for everybody, and looking is not', async () => {
    await using closed = openTestDashboard({ db: database.db, env: { OPERATOR_TOKEN: '' } })
    const id = await insertJob(database.sql, 'jobs', FAILED)
    for (const path of ['act', 'act-on-all']) {
      expect(
        (await ask(`${closed.url}/api/${path}`, { method: 'POST', headers: BEARER, body: retry(id) })).json(),
      ).toMatchObject({ code: 'ACTIONS_OFF' })
    }
    expect((await ask(`${closed.url}/api/overview`)).status).toBe(200)
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({ status: 'failed' })
  })
})

test('another site may not even ask, and nobody is told the name of our cookie who has none', async () => {
  for (const site of ['cross-site', 'same-site']) {
    expect((await ask(`${dashboard.url}/api/overview`, { headers: { 'sec-fetch-site': site } })).status).toBe(403)
  }
  for (const site of ['same-origin', 'none']) {
    expect((await ask(`${dashboard.url}/api/overview`, { headers: { 'sec-fetch-site': site } })).status).toBe(200)
  }
  const out = await ask(`${dashboard.url}/api/session`, { method: 'DELETE' })
  expect([out.status, out.headers.get('set-cookie')]).toEqual([200, null])
})

test('a table that is locked hides no other', async () => {
  const id = await insertJob(database.sql, 'jobs', HELD)
  const locker = await database.sql.reserve()
  try {
    await locker.unsafe('begin; lock table asr_jobs')
    await using impatient = openTestDashboard({ db: database.open({ queryTimeoutSec: 1 }) })
    const reply = await ask(`${impatient.url}/api/leases`)
    expect(reply.status).toBe(200)
    expect(reply.text).toContain(id)
    expect((await ask(`${impatient.url}/api/overview`)).text).toContain('asr_jobs: DEADLINE')
  } finally {
    await locker.unsafe('rollback')
    locker.release()
  }
})

test('behind a proxy that says the default port, the page is still the page', async () => {
  await using named = openTestDashboard({ db: database.db, env: { OPERATOR_HOSTS: 'ops.example.com' } })
  const body = JSON.stringify({ token: TOKEN, name: '' })
  const headers = { 'content-type': 'application/json', host: 'ops.example.com:443', origin: 'https://ops.example.com' }
  expect((await ask(`${named.url}/api/session`, { method: 'POST', headers, body })).status).toBe(200)
  const foreign = { ...headers, origin: 'https://ops.example.com:8443' }
  expect((await ask(`${named.url}/api/session`, { method: 'POST', headers: foreign, body })).status).toBe(403)
})

describe('by which name', () => {
  test.each(['evil.example', 'evil.example:9464', 'localhost.evil.example', '127.0.0.1.evil.example', '', '@', 'a b'])(
    'Host: %p gets no page and no data (Q5)',
    async (host) => {
      for (const path of ['/', '/api/overview', '/api/session']) {
        const reply = await ask(dashboard.url + path, { headers: { host } })
        expect([400, 421]).toContain(reply.status)
        expect(reply.text).not.toContain('health')
      }
    },
  )

  test.each(['localhost', 'localhost:1234', '127.0.0.1', '[::1]:9464', '192.0.2.7'])(
    'Host: %s is answered',
    async (host) => {
      expect((await ask(`${dashboard.url}/api/overview`, { headers: { host } })).status).toBe(200)
    },
  )

  test('further names are those of OPERATOR_HOSTS', async () => {
    await using named = openTestDashboard({ db: database.db, env: { OPERATOR_HOSTS: 'ops.example.com' } })
    expect((await ask(`${named.url}/api/overview`, { headers: { host: 'ops.example.com' } })).status).toBe(200)
    expect((await ask(`${named.url}/api/overview`, { headers: { host: 'evil.example' } })).status).toBe(421)
  })

  test('a scraper comes by any name and needs no token, and can only read', async () => {
    for (const path of ['/metrics', '/healthz', '/readyz']) {
      expect((await ask(dashboard.url + path, { headers: { host: 'leasehold.monitoring.svc' } })).status).toBe(200)
      expect((await ask(dashboard.url + path, { method: 'POST', headers: BEARER, body: '{}' })).status).toBe(405)
    }
  })
})

describe('off loopback', () => {
  test('looking needs the token too, a scraper does not', async () => {
    await using open = openTestDashboard({ db: database.db, env: { HTTP_HOST: '0.0.0.0' } })
    const local = open.url.replace('0.0.0.0', '127.0.0.1')
    for (const path of READS) expect((await ask(`${local}/api/${path}`)).status, path).toBe(401)
    for (const path of READS) expect((await ask(`${local}/api/${path}`, { headers: BEARER })).status, path).toBe(200)
    for (const path of ['/metrics', '/healthz', '/readyz']) expect((await ask(local + path)).status).toBe(200)
    // The page itself holds no data; it asks for the token.
    expect((await ask(local)).status).toBe(200)
  })

  test.each(['reaper.ts', 'dashboard.ts'])('%s refuses to listen there without a token', async (script) => {
    await using program = runProgram(script, { DATABASE_URL: database.url, HTTP_HOST: '0.0.0.0' })
    expect(await program.ended).toEqual({ code: 2, signal: null })
    expect(program.output()).toContain(
      'HTTP_HOST: expected a loopback address because OPERATOR_TOKEN is not set, got "0.0.0.0"',
    )
  })
})

describe('too much of everything', () => {
  test('a body of 50 MB is refused without being read (Q7)', async () => {
    const before = process.memoryUsage().rss
    const status = await ask(`${dashboard.url}/api/act`, {
      method: 'POST',
      headers: BEARER,
      body: 'x'.repeat(50_000_000),
    }).then(
      (reply) => reply.status,
      (error: { code?: string }) => error.code,
    )
    // Refused by number, or by the connection being closed in the middle of it.
    expect([413, 'ECONNRESET', 'EPIPE']).toContain(status as number)
    expect(process.memoryUsage().rss - before).toBeLessThan(400_000_000)
    expect((await ask(`${dashboard.url}/healthz`)).status).toBe(200)
  })

  test('an address of 1 MB and 10,000 headers are refused, and the next one is answered', async () => {
    const refused = async (sent: Promise<Reply>): Promise<unknown> =>
      sent.then(
        ({ status }) => status,
        () => 'closed',
      )
    expect([400, 414, 431, 'closed']).toContain(
      (await refused(ask(`${dashboard.url}/api/find?id=${'x'.repeat(1_000_000)}`))) as never,
    )
    const headers = Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`x-${at}`, 'y']))
    expect([400, 431, 'closed']).toContain((await refused(ask(`${dashboard.url}/api/overview`, { headers }))) as never)
    expect((await ask(`${dashboard.url}/api/overview`)).status).toBe(200)
  })

  test('500 slow connections: health answers, and the reaper beside them never notices (Q8)', async () => {
    const env = {
      DATABASE_URL: database.url,
      REAPER_INTERVAL_SEC: '0.5',
      OPERATOR_TOKEN: TOKEN,
      DEFAULT_LEASE_SEC: '30',
    }
    await using reaper = runProgram('reaper.ts', env)
    const { http } = (await reaper.said('reaper started')) as { http: string }
    const sockets = await openSlowly(Number(new URL(http).port), 500)
    try {
      const expired = await insertJob(database.sql, 'jobs', EXPIRED)
      await eventually(async () => (await readJob(database.sql, 'jobs', expired)).status === 'queued', {
        withinMs: 45_000,
      })
      expect((await ask(`${http}/healthz`)).text).toBe('ok\n')
      expect((await ask(`${http}/api/overview`)).status).toBe(200)
      // Half-said requests are not waited for.
      await eventually(() => sockets.every((socket) => socket.destroyed || socket.readableEnded), {
        withinMs: 30_000,
        what: 'slow connections being closed',
      })
    } finally {
      for (const socket of sockets) socket.destroy()
    }
  }, 90_000)

  test('many tabs that ask the same at once cost the database one question', async () => {
    let asked = 0
    const counting = {
      ...database.db,
      query: ((...given: Parameters<typeof database.db.query>) => (
        (asked += 1),
        database.db.query(...given)
      )) as typeof database.db.query,
    }
    await using busy = openTestDashboard({ db: counting })
    // Another question, so that the tables are known already.
    await ask(`${busy.url}/api/failures`)
    const before = asked
    await Promise.all(Array.from({ length: 30 }, () => ask(`${busy.url}/api/leases`)))
    // One for each of the two tables, and what the plots may ask meanwhile; not two for each of the thirty.
    expect(asked - before).toBeGreaterThanOrEqual(2)
    expect(asked - before).toBeLessThan(10)
  })
})

test('while the database is away, /metrics and the page answer, and the data says why it cannot (Q13)', async () => {
  await using cluster = await startCluster()
  await using program = runProgram('dashboard.ts', {
    DATABASE_URL: cluster.url,
    DASHBOARD_HTTP_PORT: '0',
    QUERY_TIMEOUT_SEC: '1',
  })
  const { http } = (await program.said('dashboard started')) as { http: string }
  expect((await ask(`${http}/api/failures`)).status).toBe(200)
  await cluster.stop()
  const away = await eventually(async () => {
    const reply = await ask(`${http}/api/failures`)
    return reply.status === 503 ? reply : null
  })
  expect(away.json()).toMatchObject({ error: expect.stringContaining('the database') })
  expect((await ask(`${http}/metrics`)).status).toBe(200)
  expect((await ask(`${http}/`)).status).toBe(200)
  const overview = (await ask(`${http}/api/overview`)).json() as { health: { level: string } }
  expect(overview.health.level).toBe('unhealthy')
  await cluster.start()
  await eventually(async () => (await ask(`${http}/api/failures`)).status === 200, { withinMs: 30_000 })
}, 90_000)

function openSlowly(port: number, many: number): Promise<Socket[]> {
  return Promise.all(
    Array.from(
      { length: many },
      () =>
        new Promise<Socket>((done, fail) => {
          const socket = connect(port, '127.0.0.1', () => {
            socket.write('GET /api/overview HTTP/1.1\r\nHost: localhost\r\nX-Slow: ')
            socket.resume()
            done(socket)
          })
          socket.once('error', fail)
          socket.on('error', () => undefined)
        }),
    ),
  )
}

/** The dashboard in a real browser: every screen, every action, with keyboard and without, and what hostile rows cannot do. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

import type { Browser, Page } from 'playwright-core'

import { createReaper } from '../../src/reaper/loop.ts'
import { createLeases } from '../../src/worker/lease.ts'
import { BROWSER, openBrowser } from '../../scripts/support/browser.ts'
import { ask, BEARER, openTestDashboard, type TestDashboard, TOKEN } from '../support/dashboard.ts'
import { freshDatabase, type TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { runProgram } from '../support/program.ts'
import { eventTypes, EXPIRED, HELD, insertJob, insertMany, readEvents, readJob } from '../support/rows.ts'
import { brokenInvariants } from '../support/witness.ts'

const FAILED = {
  status: `'failed'`,
  stage: `'clip'`,
  attempt_count: '3',
  fail_code: `'TIMEOUT'`,
  fail_reason: `'slow'`,
}
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

if (BROWSER === null) {
  process.stdout.write(
    'no browser on this machine (CHROME_PATH, PATH, @sparticuz/chromium): the dashboard is not tried in one\n',
  )
  test('CI has a browser', () => expect(process.env.CI).toBeUndefined())
}

describe.if(BROWSER !== null)('in a browser', () => {
  let database: TestDatabase
  let dashboard: TestDashboard
  let browser: Browser
  let page: Page
  const problems: string[] = []

  beforeAll(async () => {
    database = await freshDatabase()
    dashboard = openTestDashboard({ db: database.db })
    browser = await openBrowser()
    page = await newPage()
  })

  afterAll(async () => {
    await browser.close()
    expect(await brokenInvariants(database.sql)).toEqual([])
    await dashboard[Symbol.asyncDispose]()
    await database[Symbol.asyncDispose]()
  })

  afterEach(() => expect(problems.splice(0)).toEqual([]))

  /** Whatever the page's own console complains of fails the test it happened in. */
  async function newPage(options: Parameters<Browser['newPage']>[0] = {}): Promise<Page> {
    const fresh = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options })
    fresh.on('pageerror', (error) => problems.push(error.message))
    fresh.on('dialog', (dialog) => problems.push(`dialog ${dialog.message()}`))
    fresh.on('console', (message) => {
      const isAnswer = /Failed to load resource/.test(message.text())
      if (message.type() === 'error' && !isAnswer) problems.push(message.text())
    })
    return fresh
  }

  async function open(path: string, on = page): Promise<void> {
    await on.goto(dashboard.url + path)
    await on.locator('main h1').waitFor({ state: 'attached' })
  }

  const see = (text: string | RegExp, on = page): Promise<void> =>
    on.getByText(text).first().waitFor({ timeout: 10_000 })

  /** Signs in where asked, gives the reason, and confirms. */
  async function confirm(button: string, reason: string): Promise<void> {
    const dialog = page.getByRole('dialog')
    await dialog.waitFor()
    if (await dialog.getByLabel('Token').isVisible()) {
      await dialog.getByLabel('Token').fill(TOKEN)
      await dialog.getByLabel('Your name').fill('Ada')
      await dialog.getByRole('button', { name: 'Sign in' }).click()
    }
    await dialog.getByLabel('Reason').fill(reason)
    await dialog.getByRole('button', { name: button, exact: true }).click()
    await dialog.waitFor({ state: 'detached' })
  }

  const jobAddress = (id: string): string => `/job?table=jobs&id=${id}`

  test('somebody with a stuck job finds out why, and retries it, without reading anything else', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    await open('/')
    await page.getByRole('searchbox').fill(id)
    await page.keyboard.press('Enter')
    await see('Failed: TIMEOUT (slow), after attempt 3 of 3.')
    await see('Mend the cause, then retry it.')

    await page.getByRole('button', { name: 'Retry' }).click()
    await confirm('Retry', 'the storage is back')
    await see(`Retried: job ${id}.`)
    await see(/^Queued, due/)

    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({
      status: 'queued',
      attempt_count: 3,
      max_attempts: 4,
    })
    expect((await readEvents(database.sql, id))[0]?.details).toMatchObject({
      actor: 'Ada',
      reason: 'the storage is back',
    })
    await see('operator:retry')
    await see('the storage is back')
  })

  test('a reason of many lines is shown whole: what a program said last may stand in the last of them', async () => {
    const said = `E'Invalid input\\n  expected string\\n  at payload.source'`
    const id = await insertJob(database.sql, 'jobs', { ...FAILED, fail_reason: said })
    await open(jobAddress(id))
    await see('Failed: TIMEOUT (Invalid input…), after attempt 3 of 3.')
    expect(await page.locator('.reason').textContent()).toEndWith('at payload.source')
  })

  test('an action without a reason is not sent, and says what is missing', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    await open(jobAddress(id))
    await page.getByRole('button', { name: 'Retry' }).click()
    await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click()
    await see(/^Say why/)
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    expect(await eventTypes(database.sql, id)).toEqual([])
  })

  test('a job that changed while somebody typed a reason is left alone', async () => {
    const id = await insertJob(database.sql, 'jobs', HELD)
    const { leases, lease } = await held(id)
    await open(jobAddress(id))
    await page.getByRole('button', { name: 'Cancel' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('too slow')
    await leases.finishJob(lease, true)
    await page.locator('.badge.done').waitFor()
    await dialog.getByRole('button', { name: 'Cancel', exact: true }).click()
    await see(/it has changed since you looked: it was processing at attempt 1, now it is done at attempt 1/)
    expect(await readJob(database.sql, 'jobs', id)).toMatchObject({ status: 'done' })
    await page.keyboard.press('Escape')
  })

  /** A lease of ours on a row that a builder made. */
  async function held(id: string) {
    const leases = createLeases({ db: database.db, table: 'jobs' })
    const row = await readJob(database.sql, 'jobs', id)
    const lease = {
      stage: row.stage,
      leaseSec: 60,
      table: 'jobs',
      id,
      holder: row.locked_by ?? '',
      attempt: row.attempt_count ?? 0,
      until: row.lease_expires_at ?? new Date(),
    }
    return { leases, lease }
  }

  test('a running job is cancelled: its worker loses the lease, and the page says what became of it', async () => {
    const id = await insertJob(database.sql, 'jobs', HELD)
    const { leases, lease } = await held(id)
    await open(jobAddress(id))
    await see(/^Held by live-worker, attempt 1 of 3, last heartbeat .* ago, lease ends in/)
    await see(/Next: if nothing happens it is requeued at .* and runs again at/)
    await page.getByRole('button', { name: 'Cancel' }).click()
    await confirm('Cancel', 'wrong source')
    await see('Failed: cancelled (wrong source), after attempt 1 of 3.')
    expect(await leases.heartbeatJob(lease)).toMatchObject({ ok: false, code: 'LEASE_LOST' })
  })

  test('a lease is ended: the job is queued again behind its pause', async () => {
    const id = await insertJob(database.sql, 'jobs', HELD)
    await open(jobAddress(id))
    await page.getByRole('button', { name: 'End lease' }).click()
    await confirm('End lease', 'the host is on fire')
    await see(/^Queued, 1 of 3 attempts used/)
    expect((await readJob(database.sql, 'jobs', id)).locked_by).toBeNull()
  })

  test('all that failed of one thing are retried at once, after their number was shown', async () => {
    await insertMany(database.sql, 'jobs', 7, { ...FAILED, fail_code: `'NO_DISK'` })
    await insertMany(database.sql, 'jobs', 2, { ...FAILED, fail_code: `'NO_DISK'`, stage: 'null' })
    await open('/failures')
    const row = page.getByRole('row').filter({ hasText: 'NO_DISK' }).filter({ hasText: 'clip' })
    await row.getByRole('button', { name: 'Retry all 7' }).click()
    await see('Retry 7 failed jobs of jobs with code NO_DISK, stage clip?')
    await confirm('Retry 7', 'disk is back')
    await see('Retried: 7 of 7 jobs.')
    const left = await database.sql`select stage, status from jobs where fail_code = 'NO_DISK' and status = 'failed'`
    expect(left.map(({ stage }) => stage)).toEqual([null, null])
    await row.waitFor({ state: 'detached' })
  })

  test('a window stays open, with what was typed, when its group is gone from the page behind it', async () => {
    const id = await insertJob(database.sql, 'jobs', { ...FAILED, fail_code: `'NO_GPU'` })
    await open('/failures')
    const row = page.getByRole('row').filter({ hasText: 'NO_GPU' })
    await row.getByRole('button').click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('a new card')
    const body = { action: 'retry', table: 'jobs', id, seen: { status: 'failed', attempt: 3 }, reason: 'quicker' }
    await ask(`${dashboard.url}/api/act`, { method: 'POST', headers: BEARER, body: JSON.stringify(body) })
    await row.waitFor({ state: 'detached' })
    expect(await dialog.getByLabel('Reason').inputValue()).toBe('a new card')
    await dialog.getByRole('button', { name: 'Retry 1' }).click()
    await see('Retried: 0 of 1 jobs.')
  })

  test('when the session is over the window asks for the token, and keeps the reason', async () => {
    const id = await insertJob(database.sql, 'jobs', FAILED)
    await open(jobAddress(id))
    await page.getByRole('button', { name: 'Retry' }).click()
    const dialog = page.getByRole('dialog')
    await dialog.getByLabel('Reason').fill('again, please')
    await page.context().clearCookies()
    await dialog.getByRole('button', { name: 'Retry', exact: true }).click()
    await dialog.getByLabel('Token').fill(TOKEN)
    await dialog.getByRole('button', { name: 'Sign in' }).click()
    expect(await dialog.getByLabel('Reason').inputValue()).toBe('again, please')
    await dialog.getByRole('button', { name: 'Retry', exact: true }).click()
    await see(`Retried: job ${id}.`)
    expect((await readEvents(database.sql, id))[0]?.details).toMatchObject({ reason: 'again, please' })
  })

  test('the leases run down before your eyes, what is reaped next first, and what has no lease is marked', async () => {
    await database.sql`update jobs set status = 'failed', locked_by = null, lease_expires_at = null where false`
    const far = await insertJob(database.sql, 'asr_jobs', {
      ...HELD,
      lease_expires_at: `now() + interval '40 minutes'`,
    })
    const near = await insertJob(database.sql, 'asr_jobs', HELD)
    const bare = await insertJob(database.sql, 'asr_jobs', {
      ...HELD,
      lease_expires_at: 'null',
      last_heartbeat_at: 'null',
      locked_by: 'null',
    })
    await open('/leases?table=asr_jobs')
    const rows = page.locator('tbody tr')
    await eventually(async () => (await rows.count()) === 3)
    const ids = await rows.locator('th a').allTextContents()
    expect([ids[0], new Set(ids.slice(1))]).toEqual([near, new Set([far, bare])])
    await rows.filter({ hasText: bare }).getByText('no lease').waitFor()
    const words = rows.first().locator('.words')
    const before = await words.textContent()
    await eventually(async () => (await words.textContent()) !== before)
  })

  test('what is renewed does not take the focus, the selection or the place on the page', async () => {
    await open('/leases?table=asr_jobs')
    const link = page.locator('tbody tr th a').last()
    await link.focus()
    const id = await link.textContent()
    // Two answers later the same element has the focus.
    const answers = page.waitForResponse((response) => response.url().includes('/api/leases'))
    await answers
    await page.waitForResponse((response) => response.url().includes('/api/leases'))
    expect(await page.evaluate('document.activeElement?.textContent')).toBe(id)
  })

  test('going back shows the screen where it was left', async () => {
    await insertMany(database.sql, 'asr_jobs', 90, { ...HELD, lease_expires_at: `now() + interval '50 minutes'` })
    await open('/leases?table=asr_jobs')
    const link = page.locator('tbody tr th a').nth(60)
    await link.scrollIntoViewIfNeeded()
    const before = await page.evaluate<number>('window.scrollY')
    expect(before).toBeGreaterThan(500)
    await link.click()
    await see('Timeline')
    await page.goBack()
    await eventually(async () => (await page.evaluate<number>('window.scrollY')) === before)
  })

  test('what is being typed is not taken away when the page is renewed, and a choice keeps the focus', async () => {
    await open('/jobs')
    await page.getByLabel('Code').pressSequentially('TIME')
    for (let renewed = 0; renewed < 2; renewed += 1) {
      await page.waitForResponse((response) => response.url().includes('/api/jobs'))
    }
    await page.getByLabel('Code').pressSequentially('OUT')
    expect(await page.getByLabel('Code').inputValue()).toBe('TIMEOUT')
    await page.getByLabel('Status').focus()
    await page.getByLabel('Status').selectOption('failed')
    await page.waitForURL('**/jobs?table=jobs&status=failed&code=TIMEOUT')
    await see(/match/)
    expect(await page.evaluate('document.activeElement?.name')).toBe('status')
  })

  test('the filter stands in the address, and the pages go on where the last one ended', async () => {
    await insertMany(database.sql, 'asr_jobs', 120, { ...FAILED, stage: `'asr'`, fail_code: `'VALIDATION'` })
    await open('/jobs')
    await page.getByLabel('Table').selectOption('asr_jobs')
    await page.waitForURL(/asr_jobs$/)
    await page.getByLabel('Status').selectOption('failed')
    await page.waitForURL(/failed$/)
    await page.getByLabel('Code').fill('VALIDATION')
    await page.getByRole('button', { name: 'Show' }).click()
    await page.waitForURL(/code=/)
    await see('120 match')
    expect(new URL(page.url()).search).toBe('?table=asr_jobs&status=failed&code=VALIDATION')

    const seen = new Set<string>()
    for (let pages = 0; pages < 5; pages += 1) {
      const links = page.locator('tbody tr th a')
      await links.first().waitFor()
      for (const id of await links.allTextContents()) seen.add(id)
      const next = page.getByRole('link', { name: 'Next page' })
      if ((await next.count()) === 0) break
      const first = await links.first().textContent()
      await next.click()
      await eventually(async () => (await links.first().textContent({ timeout: 500 })) !== first)
    }
    expect(seen.size).toBe(120)
    await page.goBack()
    await page.goBack()
    await see('120 match')
  })

  test('the reaper’s screen shows its passes, what it would do now, and where each setting comes from', async () => {
    const id = await insertJob(database.sql, 'jobs', EXPIRED)
    const reaper = createReaper({ db: database.db, tables: ['jobs'], onPass: (pass) => dashboard.passes.add(pass) })
    await open('/reaper')
    const preview = page
      .getByRole('table', { name: 'What a pass over jobs would do' })
      .getByRole('row')
      .filter({ hasText: id })
    // Right after the start of the server the job is spared for two heartbeats.
    await eventually(
      async () => {
        await page.getByRole('button', { name: 'Look at jobs', exact: true }).click()
        return (await preview.count()) > 0
      },
      { withinMs: 45_000, everyMs: 500 },
    )
    expect(await preview.textContent()).toContain('requeuedlease_expired')
    expect((await readJob(database.sql, 'jobs', id)).status).toBe('processing')

    reaper.start()
    const moved = page.getByRole('table', { name: 'Last passes that moved something or broke' }).getByRole('row').nth(1)
    await moved.waitFor()
    await reaper.stop()
    expect((await readJob(database.sql, 'jobs', id)).status).toBe('queued')
    expect(await page.getByRole('row', { name: /^OPERATOR_TOKEN/ }).textContent()).toContain(
      '(set, not shown)environment',
    )
  })

  test('workers are those who hold something; the plan says what a deploy would interrupt', async () => {
    await insertJob(database.sql, 'jobs', { ...HELD, locked_by: `'host-4711-k3f9'`, stage: `'clip'`, progress: '50' })
    await open('/workers')
    const row = page.getByRole('table', { name: 'Workers' }).getByRole('row').filter({ hasText: 'host-4711-k3f9' })
    await row.waitFor()
    await see(/Workers get 25 s\./)
    await row.getByRole('link').click()
    await see('Running jobs of host-4711-k3f9.')
  })

  test('it says so when nobody answers, keeps what it had, and goes on by itself', async () => {
    const second = openTestDashboard({ db: database.db })
    const lonely = await newPage()
    await lonely.goto(`${second.url}/`)
    await lonely.locator('.health .sentence').waitFor()
    await second[Symbol.asyncDispose]()
    await see(/Leasehold does not answer.*What you see below is from before\./, lonely)
    await lonely.close()
  })

  test('a server that hangs is told from one that answers', async () => {
    const env = { DATABASE_URL: database.url, DASHBOARD_HTTP_PORT: '0' }
    await using program = runProgram('dashboard.ts', env)
    const { http } = (await program.said('dashboard started')) as { http: string }
    const waiting = await newPage()
    await waiting.goto(http)
    await waiting.locator('.health .sentence').waitFor()
    program.process.kill('SIGSTOP')
    await waiting.getByText(/Leasehold does not answer/).waitFor({ timeout: 20_000 })
    program.process.kill('SIGCONT')
    await waiting.getByText(/Leasehold does not answer/).waitFor({ state: 'detached', timeout: 20_000 })
    await waiting.close()
  }, 90_000)

  describe('hostile rows', () => {
    const EVIL = `<img src=x onerror="alert(1)"><script>alert(2)</script>\u001b[31m\n\u202e"'\`\${1}`

    test('text from every column is text on every screen', async () => {
      const { sql } = database
      const [row] = await sql<{ id: string }[]>`
        insert into jobs (stage, status, locked_by, attempt_count, fail_code, fail_reason, lease_expires_at, payload)
        values (${EVIL}, 'processing', ${EVIL}, 1, ${EVIL}, ${EVIL + 'x'.repeat(5_000_000)}, now() + interval '1 minute', ${sql.json({ [EVIL]: EVIL })})
        returning id`
      const id = row?.id ?? ''
      await sql`insert into jobs (stage, status, attempt_count, fail_code, fail_reason) values (${EVIL}, 'failed', 1, ${EVIL}, ${EVIL})`
      for (let at = 0; at < 3; at += 1) {
        const told = {
          type: EVIL,
          table: 'jobs',
          at: EVIL,
          details: { [EVIL]: EVIL, __proto__x: EVIL, reason: EVIL, attempt: 1 },
        }
        await sql`insert into job_events (job_id, data) values (${id}, ${sql.json(told)})`
      }
      for (const path of ['/', '/leases', '/jobs?status=failed', jobAddress(id), '/failures', '/workers', '/reaper']) {
        await open(path)
        await page.waitForResponse((response) => response.url().includes('/api/') && response.ok())
        if (path !== '/' && path !== '/reaper') await see(/<img src=x onerror/)
        expect(await page.locator('main img, main script').count()).toBe(0)
        expect((await page.content()).length).toBeLessThan(1_000_000)
      }
      await open(jobAddress(id))
      await page.locator('details.fields summary').click()
      await see(/… cut/)
      await database.sql`update jobs set locked_by = 'w', stage = 'clip' where id = ${id}`
    })

    test('an id is followed whatever it is made of', async () => {
      await open(`/job?table=jobs&id=${encodeURIComponent('../../etc/passwd"><script>alert(1)</script>')}`)
      await see(/there is no job \.\.\/\.\.\/etc\/passwd/)
      await open(`/job?table=${encodeURIComponent('jobs"; drop table jobs')}&id=1`)
      await see(/there is no table jobs"; drop table jobs here/)
    })
  })

  describe('for everybody', () => {
    const SCREENS = ['/', '/leases', '/jobs?status=failed', '/failures', '/workers', '/reaper']

    test.each(
      [...SCREENS, '/job'].flatMap(
        (path) =>
          [
            [path, 'light', 1280],
            [path, 'dark', 1280],
            [path, 'light', 375],
          ] as const,
      ),
    )(
      '%s in %s at %d pixels has no serious fault of accessibility, and does not scroll sideways',
      async (path, colorScheme, width) => {
        const looking = await newPage({ viewport: { width, height: 800 }, colorScheme })
        const id = path === '/job' ? await insertJob(database.sql, 'jobs', HELD) : ''
        await open(path === '/job' ? jobAddress(id) : path, looking)
        await looking.waitForResponse((response) => response.url().includes('/api/') && response.ok())
        await looking.locator('main table, main .health, main .explanation').first().waitFor()
        // Past the page's policy: the check is the test's, not the page's.
        const faults =
          await looking.evaluate(`${AXE}; axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) =>
        violations.filter(({ impact }) => impact === 'serious' || impact === 'critical')
          .map(({ id, nodes }) => id + ': ' + nodes.map(({ html }) => html.slice(0, 200)).join(' | ')))`)
        expect(faults).toEqual([])
        expect(
          await looking.evaluate<number>('document.documentElement.scrollWidth - window.innerWidth'),
        ).toBeLessThanOrEqual(0)
        await looking.close()
      },
    )

    test('an open window is fit for everybody too, holds the focus and gives it back', async () => {
      const id = await insertJob(database.sql, 'jobs', FAILED)
      await open(jobAddress(id))
      await page.getByRole('button', { name: 'Retry' }).focus()
      await page.keyboard.press('Enter')
      await page.getByRole('dialog').waitFor()
      const faults = await page.evaluate(`${AXE}; axe.run(document).then(({ violations }) =>
        violations.filter(({ impact }) => impact === 'serious' || impact === 'critical').map(({ id }) => id))`)
      expect(faults).toEqual([])
      for (let tabs = 0; tabs < 12; tabs += 1) {
        await page.keyboard.press('Tab')
        const place = await page.evaluate<string>(
          `document.activeElement?.closest('dialog') ? 'dialog' : document.activeElement?.tagName`,
        )
        // Past the last of its controls the browser's own bar has its turn.
        expect(['dialog', 'BODY']).toContain(place ?? '')
      }
      await page.keyboard.press('Escape')
      await page.getByRole('dialog').waitFor({ state: 'detached' })
      expect(await page.evaluate('document.activeElement?.textContent')).toBe('Retry')
    })

    test('by keyboard alone: past the menu, along it, and to the heading of a new screen', async () => {
      await open('/')
      await page.keyboard.press('Tab')
      expect(await page.evaluate('document.activeElement?.textContent')).toBe('Skip to content')
      await page.getByRole('link', { name: 'Workers' }).focus()
      await page.keyboard.press('Enter')
      await eventually(() =>
        page.evaluate<boolean>(`document.activeElement?.tagName === 'H1' && document.title === 'Workers – Leasehold'`),
      )
    })
  })

  test('off loopback nothing is shown before the token is right', async () => {
    await using elsewhere = openTestDashboard({ db: database.db, env: { HTTP_HOST: '0.0.0.0' } })
    const guest = await newPage()
    await guest.goto(elsewhere.url.replace('0.0.0.0', '127.0.0.1'))
    await guest.getByLabel('Token').fill('not-the-right-token')
    await guest.getByRole('button', { name: 'Sign in' }).click()
    await see('this is not the OPERATOR_TOKEN of this server', guest)
    expect(await guest.locator('.card').count()).toBe(0)
    await guest.getByLabel('Token').fill(TOKEN)
    await guest.getByRole('button', { name: 'Sign in' }).click()
    await guest.locator('.card').first().waitFor()
    await guest.close()
  })

  test('without a token set, the page says how to act all the same', async () => {
    await using closed = openTestDashboard({ db: database.db, env: { OPERATOR_TOKEN: '' } })
    const id = await insertJob(database.sql, 'jobs', FAILED)
    const guest = await newPage()
    await guest.goto(closed.url + jobAddress(id))
    await see(/Actions are off here/, guest)
    await see(`bun run cli retry ${id} --table jobs --reason '...'`, guest)
    expect(await guest.getByRole('button', { name: 'Retry' }).count()).toBe(0)
    await guest.close()
  })
})

/** What the systemd units rely on: readiness and watchdog messages of real programs, and units that systemd's own tools accept. */
import { describe, expect, test } from 'bun:test'
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { openNotify } from '../../src/telemetry/notify.ts'
import { startCluster } from '../support/cluster.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { listenAt, PYTHON } from '../support/notify-socket.ts'
import { ROOT, runProgram } from '../support/program.ts'
import { testFolder } from '../support/test-folder.ts'
import { childPid, openPlace, startWorker } from '../support/worker.ts'

const ANALYZE = Bun.which('systemd-analyze')
const isCi = process.env.CI === 'true'
if (!ANALYZE) console.warn('skipped: systemd-analyze is not on this machine (Debian: apt-get install systemd)')
if (!PYTHON) console.warn('skipped: python3, which listens for messages to systemd, is not on this machine')

const QUICK = { HEARTBEAT_SEC: '0.2', DEFAULT_LEASE_SEC: '1', REAPER_INTERVAL_SEC: '0.3' }

describe.if(PYTHON !== null || isCi)('messages to systemd', () => {
  test.each([
    ['a path', (folder: string) => join(folder, 'notify')],
    ['an abstract name', () => `@leasehold-test-${process.pid}`],
  ])(
    'the reaper is ready after its first pass, feeds the watchdog with each, and says when it stops: %s',
    async (_, at) => {
      await using t = await freshDatabase()
      using folder = testFolder()
      await using systemd = await listenAt(at(folder.path))
      await using reaper = runProgram('reaper.ts', { ...QUICK, DATABASE_URL: t.url, NOTIFY_SOCKET: systemd.address })
      await systemd.heard('READY=1')
      await systemd.heard('STATUS=every pass goes through')
      await eventually(() => systemd.datagrams().filter((lines) => lines.includes('WATCHDOG=1')).length >= 5)
      reaper.process.kill('SIGTERM')
      await systemd.heard('STOPPING=1')
      expect(await reaper.ended).toEqual({ code: 0, signal: null })
      expect(
        systemd
          .datagrams()
          .flat()
          .filter((line) => line === 'READY=1'),
      ).toHaveLength(1)
      expect(systemd.datagrams().at(-1)).toContain('STOPPING=1')
    },
  )

  test('an outage of the database does not silence it: a restart would only forget the outage', async () => {
    await using cluster = await startCluster()
    await cluster.stop()
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    const env = { ...QUICK, DATABASE_URL: cluster.url, QUERY_TIMEOUT_SEC: '1', NOTIFY_SOCKET: systemd.address }
    await using reaper = runProgram('reaper.ts', env)
    const http = String((await reaper.said('reaper started')).http)
    await systemd.heard('READY=1')
    await systemd.heard(/^STATUS=waiting for the database at /)
    await eventually(async () => (await fetch(`${http}/healthz`)).status === 503, {
      what: 'not alive by its own health',
    })
    const before = systemd.datagrams().length
    await eventually(() => systemd.datagrams().length > before + 1, { what: 'the watchdog is still fed' })
    await cluster.start()
    await systemd.heard('STATUS=every pass goes through')
  })

  test('a loop that hangs goes silent, though its timers still run', async () => {
    await using t = await freshDatabase()
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    await using reaper = runProgram('reaper.ts', {
      ...QUICK,
      DATABASE_URL: t.url,
      QUERY_TIMEOUT_SEC: '600',
      NOTIFY_SOCKET: systemd.address,
      WATCHDOG_USEC: '400000',
    })
    const http = String((await reaper.said('reaper started')).http)
    await systemd.heard('READY=1')
    const lock = await t.sql.reserve()
    await lock`begin`
    await lock`lock table jobs in access exclusive mode`
    await eventually(() => systemd.silentMs() > 2500, { what: 'silence' })
    expect((await fetch(`${http}/healthz`)).status).toBe(503)
    const before = systemd.datagrams().length
    await lock`rollback`
    lock.release()
    await eventually(() => systemd.datagrams().length > before, { what: 'the watchdog is fed again' })
  })

  test('between two passes that are far apart the watchdog is fed as long as the reaper is alive', async () => {
    await using t = await freshDatabase()
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    const env = { DATABASE_URL: t.url, NOTIFY_SOCKET: systemd.address, WATCHDOG_USEC: '400000' }
    await using reaper = runProgram('reaper.ts', env)
    const http = String((await reaper.said('reaper started')).http)
    await eventually(() => systemd.datagrams().filter((lines) => lines.join() === 'WATCHDOG=1').length >= 5)
    const metrics = await (await fetch(`${http}/metrics`)).text()
    expect(metrics).toContain('reaper_passes_total{table="jobs",outcome="ok"} 1\n')
  })

  test('a worker is ready when its handlers are, and feeds the watchdog only while its main loop moves', async () => {
    await using t = await freshDatabase()
    using place = openPlace()
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    await using worker = startWorker(t.url, place, { NOTIFY_SOCKET: systemd.address, WATCHDOG_USEC: '180000000' })
    const child = await childPid(worker)
    await systemd.heard('READY=1')
    await systemd.heard('STATUS=jobs running: 0')
    expect(worker.lines().some((line) => line.msg === 'worker ready')).toBe(true)
    expect(readFileSync(`/proc/${child}/environ`, 'utf8')).not.toContain('NOTIFY_SOCKET')
    await eventually(() => systemd.datagrams().length >= 2, { what: 'a second report' })

    // Its supervisor lives on, and must not speak for it.
    process.kill(child, 'SIGSTOP')
    await eventually(() => systemd.silentMs() > 8000, { what: 'silence' })
    process.kill(child, 'SIGCONT')
    await eventually(() => systemd.silentMs() < 1000, { what: 'the watchdog is fed again' })
    worker.process.kill('SIGTERM')
    await systemd.heard('STOPPING=1')
    expect((await worker.ended).code).toBe(0)
  }, 60_000)

  test('what a text says stays in its line', async () => {
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    const faults: string[] = []
    const notify = openNotify(systemd.address, (fault) => faults.push(fault))
    expect(notify({ STATUS: `stuck\nREADY=1\r\u001b[31m\u0000${'x'.repeat(5_000_000)}` })).toBe(true)
    await systemd.heard(/^STATUS=stuck READY=1 \[31m x+$/)
    expect(systemd.datagrams()).toHaveLength(1)
    expect(systemd.datagrams()[0]).toHaveLength(1)
    expect(faults).toEqual([])
  })

  test('a listener that does not read is not waited for, and heard of once', async () => {
    using folder = testFolder()
    await using systemd = await listenAt(join(folder.path, 'notify'))
    const faults: string[] = []
    const notify = openNotify(systemd.address, (fault) => faults.push(fault))
    systemd.process.kill('SIGSTOP')
    await eventually(() => !notify({ WATCHDOG: 1 }), { everyMs: 0, what: 'a full queue' })
    expect(notify({ WATCHDOG: 1 })).toBe(false)
    expect(faults).toEqual([`nobody takes messages at ${systemd.address}`])
    systemd.process.kill('SIGCONT')
    await eventually(() => notify({ WATCHDOG: 1 }), { what: 'room in the queue' })
  })

  test.each([
    ['an address where nobody listens', '/tmp/leasehold-nobody/notify', 'nobody takes messages'],
    ['an address that is none', 'vsock:2:1234', 'not the address of a socket'],
    ['a path that is too long', `/tmp/${'x'.repeat(200)}`, 'not the address of a socket'],
  ])('%s is said once and stops nothing', async (_, address, fault) => {
    await using t = await freshDatabase()
    await using reaper = runProgram('reaper.ts', { ...QUICK, DATABASE_URL: t.url, NOTIFY_SOCKET: address })
    const http = String((await reaper.said('reaper started')).http)
    await eventually(async () =>
      /reaper_passes_total\{table="jobs",outcome="ok"\} [5-9]/.test(await (await fetch(`${http}/metrics`)).text()),
    )
    const warnings = reaper.lines().filter((line) => line.msg === 'systemd cannot be told how we are doing')
    expect(warnings).toHaveLength(1)
    expect(String(warnings[0]?.fault)).toContain(fault)
  })
})

describe.if(ANALYZE !== null || isCi)('the units', () => {
  const UNITS = join(ROOT, 'docs', 'deploy')
  const names = readdirSync(UNITS).filter((name) => name.endsWith('.service'))

  test.each(names)('systemd-analyze verify has nothing to say about %s', (name) => {
    using folder = testFolder()
    // The program it names is not on this machine, but Bun is somewhere.
    const unit = folder.write(
      name,
      readFileSync(join(UNITS, name), 'utf8').replace('/usr/local/bin/bun', process.execPath),
    )
    const { status, stdout, stderr } = spawnSync(ANALYZE ?? '', ['verify', '--man=no', unit], { encoding: 'utf8' })
    expect(stdout + stderr).toBe('')
    expect(status).toBe(0)
  })

  test.each(names)('systemd-analyze security gives %s less than 2 of 10', (name) => {
    const { status, stdout } = spawnSync(
      ANALYZE ?? '',
      ['security', '--offline=true', '--threshold=20', '--no-pager', join(UNITS, name)],
      { encoding: 'utf8' },
    )
    expect(stdout).toContain('Overall exposure level')
    expect(status).toBe(0)
  })
})

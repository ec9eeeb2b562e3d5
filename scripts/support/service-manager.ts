/** Who started us and wants to know how we are doing: systemd (ready, watchdog, a status line), PM2 (ready), or nobody. */
import type { Log } from '../../src/telemetry/log.ts'
import { type Notify, openNotify } from '../../src/telemetry/notify.ts'

export interface ServiceManager {
  /** Work was completed and goes on. Said for the first time, the service is ready. */
  working(status: string): void
  /** Also feeds the watchdog while this holds: between two pieces of work, and in the middle of a long one. */
  watch(isAlive: () => boolean): void
  stopping(): void
}

/** How many times the watchdog is fed within its time. */
const FEEDS = 4

export function findServiceManager(log: Log): ServiceManager {
  const notify = openSystemd(log)
  const watchdogMs = Number(process.env.WATCHDOG_USEC ?? 0) / 1000
  let isReady = false
  let shown = ''
  let isStopping = false
  return {
    working(status) {
      if (isStopping) return
      const isTold = notify({
        ...(isReady ? {} : { READY: 1 }),
        ...(status === shown ? {} : { STATUS: status }),
        WATCHDOG: 1,
      })
      if (!isTold) return
      if (!isReady) tellProcessManager()
      isReady = true
      shown = status
    },
    watch(isAlive) {
      if (watchdogMs > 0) setInterval(() => isAlive() && notify({ WATCHDOG: 1 }), watchdogMs / FEEDS).unref()
    },
    stopping() {
      isStopping = true
      notify({ STOPPING: 1, STATUS: 'stopping' })
    },
  }
}

function openSystemd(log: Log): Notify {
  const address = process.env.NOTIFY_SOCKET
  // What we start must not speak for us.
  delete process.env.NOTIFY_SOCKET
  if (!address) return () => true
  return openNotify(address, (fault) => log.warn({ fault }, 'systemd cannot be told how we are doing'))
}

/** PM2 with wait_ready listens on a channel of Node's. */
function tellProcessManager(): void {
  process.send?.('ready', undefined, undefined, () => undefined)
}

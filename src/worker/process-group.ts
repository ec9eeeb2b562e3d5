/** A command and all it started, as one thing that can be ended: a process group of its own. */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

export interface ProcessGroup {
  /** The process that leads the group; the group carries its number. */
  pid: number
  /** The leader has ended and was collected; others of the group may live on. */
  isLeaderGone: boolean
  /** We are ending it, or have. */
  isEnding: boolean
  /** Resolved once we have ended it. */
  gone: PromiseWithResolvers<void>
}

/** A look costs about half a millisecond per hundred processes of the machine. */
const LOOK_EVERY_MS = 50

/** How long a group may take to vanish after SIGKILL. Only a process stuck in the kernel takes longer. */
const VANISH_LIMIT_MS = 2000

/** For a child that was spawned detached; one that could not be started has no number, and nothing to end. */
export function newGroup(pid: number | undefined): ProcessGroup {
  return { pid: pid ?? 0, isLeaderGone: false, isEnding: false, gone: Promise.withResolvers() }
}

/** SIGTERM to the whole group, SIGKILL after `graceMs` to whatever is left of it. Never rejects. */
export async function endGroup(group: ProcessGroup, graceMs: number, onStubborn: () => void): Promise<void> {
  if (!group.isEnding) {
    group.isEnding = true
    const isThere = signalGroup(group, 'SIGTERM')
    if (isThere && !(await isGoneWithin(group, graceMs))) {
      onStubborn()
      signalGroup(group, 'SIGKILL')
      await isGoneWithin(group, VANISH_LIMIT_MS)
    }
    group.gone.resolve()
  }
  await group.gone.promise
}

/** True while a process of the group runs. In a container without an init process, dead grandchildren stay as zombies: they do not count. */
export function isGroupAlive(group: ProcessGroup): boolean {
  if (!signalGroup(group, 0)) return false
  try {
    return process.platform !== 'linux' || readdirSync('/proc').some((pid) => isRunning(pid, group))
  } catch {
    // Out of descriptors, say: then we do not know better than the signal does.
    return true
  }
}

function isRunning(pid: string, group: ProcessGroup): boolean {
  if (!/^\d+$/.test(pid)) return false
  try {
    // "pid (name) state parent group …", where the name may hold anything.
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    const [state = '', , groupId] = stat.slice(stat.lastIndexOf(')') + 2).split(' ', 3)
    return Number(groupId) === group.pid && !'ZX'.includes(state)
  } catch {
    return false
  }
}

async function isGoneWithin(group: ProcessGroup, limitMs: number): Promise<boolean> {
  const deadline = performance.now() + limitMs
  while (isGroupAlive(group)) {
    if (performance.now() >= deadline) return false
    await sleep(LOOK_EVERY_MS)
  }
  return true
}

function signalGroup(group: ProcessGroup, signal: NodeJS.Signals | 0): boolean {
  // kill(0) would reach ourselves.
  if (group.pid <= 0) return false
  // No new process gets this number while the group has members: one that has it now is a stranger, and the group is gone.
  if (group.isLeaderGone && canSignal(group.pid, 0)) return false
  return canSignal(-group.pid, signal)
}

function canSignal(target: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(target, signal)
  } catch {
    return false
  }
}

let prefix: string[] | undefined

/** On Linux the kernel kills a command whose parent died, even by SIGKILL. BusyBox's setpriv cannot: hence the try. */
export function withDeathSignal(command: readonly string[]): string[] {
  prefix ??= findDeathSignal()
  return [...prefix, ...command]
}

function findDeathSignal(): string[] {
  if (process.platform !== 'linux') return []
  // By its full path: the command's own environment may have another PATH, or none.
  const setpriv = ['/usr/bin/setpriv', '/bin/setpriv'].find((path) => existsSync(path))
  if (!setpriv) return []
  const options = ['--pdeathsig', 'KILL', '--']
  return spawnSync(setpriv, [...options, 'true'], { stdio: 'ignore' }).status === 0 ? [setpriv, ...options] : []
}

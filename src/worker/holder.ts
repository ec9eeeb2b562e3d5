/** Who holds a lease: a worker incarnation, new at every process start, so that a restarted worker is never taken for its predecessor. */
import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

export function newHolder(): string {
  return `${hostname()}-${process.pid}-${randomBytes(3).toString('hex')}`
}

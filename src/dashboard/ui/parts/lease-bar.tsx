/** How much of its time a running job has left, as a bar and in words. */
import { duration } from '../../../job/duration.ts'
import { shareLeft } from '../../../operator/time-left.ts'
import type { Job } from '../answers.ts'

const WIDTH = 100

export function LeaseBar({ job, now }: { job: Job; now: number }): preact.JSX.Element {
  if (job.endsAt === null) return <span class="muted">nothing in the row tells its age</span>
  const leftSec = (Date.parse(job.endsAt) - now) / 1000
  const share = shareLeft(job, now) ?? (leftSec > 0 ? 1 : 0)
  const level = leftSec <= 0 ? 'over' : share < 1 / 3 ? 'low' : 'fine'
  return (
    <span class={`lease ${level}`}>
      <svg class="bar" viewBox={`0 0 ${WIDTH} 8`} preserveAspectRatio="none" aria-hidden="true">
        <rect class="rest" width={WIDTH} height="8" rx="2" />
        <rect class="left" width={share * WIDTH} height="8" rx="2" />
      </svg>
      <span class="words">{leftSec > 0 ? `${duration(leftSec)} left` : `over for ${duration(-leftSec)}`}</span>
      {job.isLeaseOdd ? (
        <span class="mark">lease not believed</span>
      ) : (
        job.leaseUntil === null && <span class="mark">no lease</span>
      )}
      {job.isSpared && <span class="mark">spared</span>}
    </span>
  )
}

/** What the API answers, as it arrives: moments are texts. */
import type { SettingInForce } from '../../config/describe.ts'
import type { JobView } from '../../db/job-view.ts'
import type { ReapedRow } from '../../db/reap.ts'
import type { DrainPlan } from '../../operator/drain.ts'
import type { Action } from '../../operator/explain.ts'
import type { TableHistory } from '../../operator/history.ts'
import type { FailureGroups, JobDetails, JobPage, Operator, Overview } from '../../operator/operator.ts'
import type { PassReport } from '../../reaper/loop.ts'

type Json<T> = T extends Date
  ? string
  : T extends readonly (infer Item)[]
    ? Json<Item>[]
    : T extends object
      ? { [Key in keyof T]: Json<T[Key]> }
      : T

export type Job = Json<JobView>
export type Details = Json<JobDetails>
export type Groups = Json<FailureGroups>[]
export type Workers = Json<Awaited<ReturnType<Operator['workers']>>>
export type Plan = Json<DrainPlan>
export type Pass = Json<PassReport>
export type History = TableHistory
export type OverviewAnswer = Json<Overview> & { history: History[] }
export type LeasesAnswer = { leases: Job[] }
export type JobsAnswer = Json<JobPage>
export type ReaperAnswer = { now: string; latest: Pass[] | null; eventful: Pass[] | null; settings: SettingInForce[] }
export type PreviewAnswer = { rows: Json<ReapedRow>[] }
export type Found = { table: string; id: string; status: string | null; word: string }[]
export interface BulkAnswer {
  moved: number
  refused: number
  /** Why the first of them was refused. */
  why: string | null
}
export type { Action }

export interface Session {
  hasActions: boolean
  /** Who is signed in; null for somebody who may only look. */
  actor: string | null
  pollSec: number
  tables: string[]
  database: string
  /** How the command line is called there. */
  cli: string
}

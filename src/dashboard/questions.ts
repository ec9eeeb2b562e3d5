/** What a request may ask for: its query or its body as a checked object, or a sentence that says what was expected. */
import { z } from 'zod'

import type { JobFilter } from '../db/job-filter.ts'
import { STATUSES } from '../job/status.ts'
import { ACTIONS } from '../operator/explain.ts'
import { BULK_STATUS, type BulkAction } from '../operator/operator.ts'
import { refusal, type ServiceResult, success } from '../result.ts'

const name = z.string({ error: 'expected the name of a table' }).min(1).max(200)
const id = z.string({ error: 'expected the id of a job' }).min(1).max(1000)
const text = z.string().max(500)
const reason = z.string({ error: 'expected a reason' }).max(2000)
/** `stage=` (empty) means: those that have none. */
const orNone = text.transform((value) => (value === '' ? null : value)).optional()
const filterShape = {
  status: z.enum(STATUSES, { error: `expected one of ${STATUSES.join(', ')}` }).optional(),
  stage: orNone,
  code: orNone,
  holder: orNone,
}

export const QUESTIONS = {
  jobs: z.strictObject({ table: name, ...filterShape, after: id.optional() }),
  count: z.strictObject({ table: name, ...filterShape }),
  job: z.strictObject({ table: name, id }),
  find: z.strictObject({ id }),
  leases: z.strictObject({ table: name.optional(), holder: orNone }),
  preview: z.strictObject({ table: name }),
  nothing: z.strictObject({}),
} as const

const nullable = text.nullable().optional()
export const ORDERS = {
  signIn: z.strictObject({
    token: z.string({ error: 'expected a token' }).max(500),
    name: z.string().max(200).default(''),
  }),
  act: z.strictObject({
    action: z.enum(ACTIONS, { error: `expected one of ${ACTIONS.join(', ')}` }),
    table: name,
    id,
    /** How the job was on the page: one that has changed since is left alone. */
    seen: z.strictObject({ status: z.enum(STATUSES), attempt: z.number(), holder: text.nullable().optional() }),
    reason,
  }),
  actOnAll: z.strictObject({
    action: z.enum(Object.keys(BULK_STATUS) as [BulkAction, ...BulkAction[]], { error: 'expected retry or cancel' }),
    table: name,
    filter: z.strictObject({ stage: nullable, code: nullable, holder: nullable }),
    /** As many as the page said there are. */
    atMost: z.number().int().min(1).max(100_000),
    reason,
  }),
} as const

export function understand<T>(schema: z.ZodType<T>, given: unknown): ServiceResult<T, 'NOT_UNDERSTOOD'> {
  const parsed = schema.safeParse(given)
  if (parsed.success) return success(parsed.data)
  const [issue] = parsed.error.issues
  const place = issue?.path.join('.') ?? ''
  return refusal('NOT_UNDERSTOOD', `${place ? `${place}: ` : ''}${issue?.message ?? 'not understood'}`)
}

export function queryOf(url: URL): Record<string, string> {
  return Object.fromEntries(url.searchParams)
}

export function filterOf({ status, stage, code, holder }: JobFilter): JobFilter {
  return { status, stage, code, holder }
}

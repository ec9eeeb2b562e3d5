/**
 * SQL functions for workers in other languages: claim, heartbeat, progress and finish, made from the very statements our
 * own workers send, so that the fence and the events are the same. The settings in force are written into them.
 */
import { createHash } from 'node:crypto'

import { UNKNOWN_CODE, MAX_CODE_LENGTH, MAX_REASON_LENGTH } from '../job/failure.ts'
import type { StagePolicy } from '../job/stage.ts'
import { progressStatement } from './attempt.ts'
import { claimStatement } from './claim.ts'
import type { Database } from './client.ts'
import { byStage, fromNow } from './dialect.ts'
import { completeStatement, failStatement, type FenceSql, ownFinishStatement } from './finish.ts'
import { render } from './render.ts'
import { stagesFor } from './rules.ts'
import { type Fragment, quoteLiteral, quoteName, raw, sql } from './sql.ts'
import type { JobTable } from './table.ts'

export interface FunctionSettings {
  stages: StagePolicy
  maxAttempts: number
  backoffLadderMs: readonly number[]
}

export interface SqlFunction {
  name: string
  sql: string
}

const SCHEMA = 'leasehold'
const CLAIMED = `table (id text, attempt bigint, holder text, stage text, lease_until timestamptz, lease_sec double precision, job jsonb)`
/** An id that does not even fit the column's type: there is no such job. */
const MALFORMED = 'invalid_text_representation or numeric_value_out_of_range'

/** What is missing or was made for other settings, as statements. A table without a fence gets no functions. */
export async function planFunctions(db: Database, table: JobTable, settings: FunctionSettings): Promise<string[]> {
  const wanted = functionsFor(table, settings)
  const installed = await db.query(
    (run) => run<{ name: string; signature: string; comment: string | null }[]>`
      select p.proname as name, pg_get_function_identity_arguments(p.oid) as signature, obj_description(p.oid, 'pg_proc') as comment
      from pg_proc p
      join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = ${SCHEMA}`,
  )
  const statements = wanted.flatMap(({ name, sql: text }) => {
    const mark = `leasehold ${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
    const found = installed.filter((each) => each.name === name)
    if (found.length === 1 && found[0]?.comment === mark) return []
    const place = `${SCHEMA}.${quoteName(name)}`
    return [
      ...found.map(({ signature }) => `drop function ${place}(${signature})`),
      text,
      `comment on function ${place} is ${quoteLiteral(mark)}`,
    ]
  })
  return statements.length === 0 ? [] : [`create schema if not exists ${SCHEMA}`, ...statements]
}

export function functionsFor(table: JobTable, settings: FunctionSettings): SqlFunction[] {
  const { profile } = table
  const { holder, attempts, leaseExpiresAt } = profile.columns
  if (holder === null || attempts === null || leaseExpiresAt === null) return []
  const stages = stagesFor(profile, settings.stages)
  return [
    claimNext(table, stages, settings),
    claimOne(table, stages, settings),
    heartbeat(table, stages),
    progress(table),
    finish(table, settings),
  ]
}

function claimNext(table: JobTable, stages: StagePolicy, { maxAttempts }: FunctionSettings): SqlFunction {
  const { dialect: d } = table
  const which = sql`and ($3 is null or ${d.read.stage}::text = any($3)) order by ${d.dueAt} nulls first limit greatest($2, 0)`
  return define(table, 'claim', 'worker text, max_jobs integer default 1, only_stages text[] default null', CLAIMED, [
    `return query ${claimed(table, stages, maxAttempts, raw('$1'), which)};`,
  ])
}

function claimOne(table: JobTable, stages: StagePolicy, { maxAttempts }: FunctionSettings): SqlFunction {
  const which = sql`and ${table.dialect.read.id} = ${idParameter(table)}`
  return define(table, 'claim_one', 'job_id text, worker text', CLAIMED, [
    `return query ${claimed(table, stages, maxAttempts, raw('$2'), which)};`,
    `exception when ${MALFORMED} then return;`,
  ])
}

function claimed(table: JobTable, stages: StagePolicy, maxAttempts: number, holder: Fragment, which: Fragment): string {
  const leaseSec = byStage(table.dialect.read.stage, stages.leaseSec, stages.defaultLeaseSec)
  const ours = ['lh_id', 'lh_attempt', 'lh_stage', 'lh_until', 'lh_lease_sec', 'lh_due'].map(quoteLiteral).join(', ')
  return render(sql`
    ${claimStatement(table, { holder, maxAttempts }, which, leaseSec)}
    select claimed.lh_id::text, claimed.lh_attempt::bigint, ${holder}::text, claimed.lh_stage, claimed.lh_until,
      claimed.lh_lease_sec, to_jsonb(claimed) - array[${raw(ours)}]
    from claimed
    order by claimed.lh_due nulls first`)
}

/** The lease is renewed by the stage's full length; the lock comes first, its end is computed after it. */
function heartbeat(table: JobTable, stages: StagePolicy): SqlFunction {
  const { dialect: d } = table
  const { id, holder, attempt } = fenceParameters(table)
  const leaseSec = byStage(d.read.stage, stages.leaseSec, stages.defaultLeaseSec)
  const statement = render(sql`
    with held as materialized (
      select ${d.read.id} as lh_id, ${leaseSec} as lh_lease_sec
      from ${d.table} as j
      where ${d.read.id} = ${id}
        and ${d.isHeldBy(holder, attempt)}
      for no key update of j
    )
    update ${d.table} as j
    set ${d.set({ heartbeatAt: sql`clock_timestamp()`, leaseExpiresAt: fromNow(sql`held.lh_lease_sec`) })}
    from held
    where ${d.read.id} = held.lh_id
    returning ${d.read.leaseExpiresAt} into lh_until`)
  return define(
    table,
    'heartbeat',
    'job_id text, holder text, attempt bigint',
    'timestamptz',
    [`${statement};`, 'return lh_until;', `exception when ${MALFORMED} then return null;`],
    'lh_until timestamptz;',
  )
}

function progress(table: JobTable): SqlFunction {
  const details = sql`jsonb_build_object('pct', round($4::numeric, 2))`
  const statement = render(progressStatement(table, fenceParameters(table), sql`$4::float8`, details))
  return define(
    table,
    'progress',
    'job_id text, holder text, attempt bigint, pct double precision',
    'boolean',
    [
      `${statement} into lh_written;`,
      'return lh_written is not null;',
      `exception when ${MALFORMED} then return false;`,
    ],
    'lh_written integer;',
  )
}

/** A finish that breaks a constraint of the host's would break it again at every attempt: the job fails, with the constraint's name. */
function finish(table: JobTable, { maxAttempts, backoffLadderMs: ladderMs }: FunctionSettings): SqlFunction {
  const fence = fenceParameters(table)
  const code = raw('lh_code')
  const failed = failStatement(table, fence, {
    failure: { code, reason: raw('lh_reason'), permanent: raw('lh_permanent') },
    maxAttempts,
    ladderMs,
  })
  return define(
    table,
    'finish',
    'job_id text, holder text, attempt bigint, success boolean, code text default null, reason text default null, permanent boolean default null',
    'text',
    [
      `lh_code := coalesce(nullif(trim(left($5, ${MAX_CODE_LENGTH})), ''), ${quoteLiteral(UNKNOWN_CODE)});`,
      `lh_reason := coalesce(nullif(trim(left($6, ${MAX_REASON_LENGTH})), ''), lh_code);`,
      `lh_permanent := coalesce($7, lh_code in ('VALIDATION', 'INPUT_TOO_LARGE'));`,
      'begin',
      `if $4 then ${render(completeStatement(table, fence, sql`'{}'::jsonb`))} into lh_ended;`,
      `else ${render(failed)} into lh_ended; end if;`,
      'exception when integrity_constraint_violation then',
      'get stacked diagnostics lh_reason = constraint_name, lh_code = returned_sqlstate;',
      `lh_reason := lh_code || ' ' || lh_reason; lh_code := 'FINISH_REJECTED'; lh_permanent := true;`,
      `${render(failed)} into lh_ended;`,
      'end;',
      '-- Nothing was changed: it was said before and the answer was lost, or the lease is somebody else’s.',
      `if lh_ended is null then ${render(ownFinishStatement(table, fence))} into lh_ended; end if;`,
      'return lh_ended;',
      `exception when ${MALFORMED} then return null;`,
    ],
    'lh_ended text; lh_code text; lh_reason text; lh_permanent boolean;',
  )
}

function fenceParameters(table: JobTable): FenceSql {
  return { id: idParameter(table), holder: raw('$2'), attempt: raw('$3') }
}

function idParameter({ dialect: d }: JobTable): Fragment {
  return sql`$1::text::${d.idType}`
}

/** Parameters go by number in the bodies, so that no column of a team's table can be taken for one. */
function define(
  { name: table }: JobTable,
  verb: string,
  parameters: string,
  returns: string,
  body: readonly string[],
  variables = '',
): SqlFunction {
  const name = functionName(verb, table)
  const text = [
    `create or replace function ${SCHEMA}.${quoteName(name)}(${parameters}) returns ${returns} language plpgsql as $leasehold$`,
    '#variable_conflict use_column',
    ...(variables === '' ? [] : [`declare ${variables}`]),
    'begin',
    ...body,
    'end $leasehold$',
  ]
  return { name, sql: text.join('\n').replaceAll(/\n\s*\n/g, '\n') }
}

/** `media.jobs` → `claim_media__jobs`; what is too long for a name keeps its beginning and gets a hash. */
export function functionName(verb: string, table: string): string {
  const name = `${verb}_${table.replaceAll('.', '__')}`
  if (Buffer.byteLength(name) <= 63) return name
  return `${name.slice(0, 40)}_${createHash('sha256').update(table).digest('hex').slice(0, 8)}`
}

/** Reads the file in which a team describes its tables: a few lines each, on top of a built-in spelling. */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

import type { z } from 'zod'

import { hintAt } from '../job/closest.ts'
import { type Profile, profileSchema } from './profile.ts'
import { BUILT_IN_PROFILES } from './profiles.ts'

/** The file cannot be used. The message lists every fault with its place. */
export class ProfileError extends Error {
  readonly faults: string[]

  constructor(file: string, faults: string[]) {
    super(`The tables in ${file} cannot be used:\n${faults.map((fault) => `  ${fault}`).join('\n')}`)
    this.name = 'ProfileError'
    this.faults = faults
  }
}

/** A list of tables, or `{ "tables": [ … ] }`; JSON, or a module whose default export is one of the two. */
export async function loadProfiles(file: string): Promise<Profile[]> {
  return parseProfiles(await readEntries(file), file)
}

/** Those that were asked for by name; all of them when nobody asked. */
export function pickProfiles(profiles: readonly Profile[], names: string[] | null, file: string): Profile[] {
  const known = profiles.map(({ table }) => table)
  const missing = (names ?? []).filter((name) => !known.includes(name))
  if (missing.length > 0) {
    const faults = missing.map((name) => `${name}: expected one of ${known.join(', ')}${hintAt(name, known)}`)
    throw new ProfileError(file, faults)
  }
  return profiles.filter(({ table }) => names === null || names.includes(table))
}

async function readEntries(file: string): Promise<unknown> {
  try {
    if (!/\.[cm]?[jt]s$/.test(file)) return JSON.parse(readFileSync(file, 'utf8')) as unknown
    const module = (await import(pathToFileURL(resolve(file)).href)) as { default?: unknown }
    return module.default
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new ProfileError(file, [`the file could not be read: ${why}`])
  }
}

export function parseProfiles(content: unknown, file: string): Profile[] {
  const list = isObject(content) && 'tables' in content ? content.tables : content
  if (!Array.isArray(list) || list.length === 0) {
    throw new ProfileError(file, ['expected a list of tables, e.g. { "tables": [{ "table": "jobs" }] }'])
  }
  const faults: string[] = []
  const profiles = list.flatMap((entry: unknown, at) => parseOne(entry, at, faults) ?? [])
  const names = profiles.map(({ table }) => table)
  for (const name of new Set(names.filter((each, at) => names.indexOf(each) !== at))) {
    faults.push(`${name}: expected every table once`)
  }
  if (faults.length > 0) throw new ProfileError(file, faults)
  return profiles
}

function parseOne(entry: unknown, at: number, faults: string[]): Profile | null {
  const place = `tables[${at}]`
  if (!isObject(entry) || typeof entry.table !== 'string') {
    faults.push(`${place}.table: expected the name of a table, e.g. "jobs"`)
    return null
  }
  const { extends: base = 'snake_case', ...own } = entry
  if (typeof base !== 'string' || !Object.hasOwn(BUILT_IN_PROFILES, base)) {
    const known = Object.keys(BUILT_IN_PROFILES)
    faults.push(`${place}.extends: expected one of ${known.join(', ')}${hintAt(String(base), known)}`)
    return null
  }
  const whole = complete(BUILT_IN_PROFILES[base as keyof typeof BUILT_IN_PROFILES](entry.table), own)
  const parsed = profileSchema.safeParse(whole)
  if (parsed.success) return parsed.data
  faults.push(...parsed.error.issues.flatMap((issue) => describe(issue, place, whole)))
  return null
}

/** What the team wrote, laid over the built-in spelling; lists and nulls replace, objects are filled in. */
function complete(base: unknown, own: unknown): unknown {
  if (own === undefined) return base
  if (!isObject(base) || !isObject(own)) return own
  const keys = new Set([...Object.keys(base), ...Object.keys(own)])
  return Object.fromEntries([...keys].map((key) => [key, complete(base[key], own[key])]))
}

function describe(issue: z.core.$ZodIssue, place: string, whole: unknown): string[] {
  const path = issue.path.reduce<string>((text, key) => `${text}.${String(key)}`, place)
  const came = issue.path.reduce<unknown>((value, key) => (isObject(value) ? value[String(key)] : undefined), whole)
  if (issue.code === 'unrecognized_keys') {
    const known = knownKeys(issue.path)
    return issue.keys.map((key) => `${path}.${key}: there is no such entry${hintAt(key, known)}`)
  }
  const got = came === undefined || isObject(came) ? '' : `, got ${JSON.stringify(came)?.slice(0, 80)}`
  return [`${path}: ${issue.message}${issue.code === 'custom' ? '' : got}`]
}

/** What could have stood there, for a hint. */
function knownKeys(path: readonly PropertyKey[]): string[] {
  const example = path.reduce<unknown>(
    (value, key) => (isObject(value) ? value[String(key)] : undefined),
    BUILT_IN_PROFILES.snake_case('jobs'),
  )
  return isObject(example) ? Object.keys(example) : []
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

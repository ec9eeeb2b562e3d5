/** A profile as the few lines a person would write into the file of tables: only what differs from its built-in base. */
import type { Profile } from '../db/profile.ts'
import { BUILT_IN_PROFILES } from '../db/profiles.ts'
import type { BaseName } from './guess.ts'

export type Entry = { extends: BaseName; table: string } & Record<string, unknown>

export function entryOf(profile: Profile, base: BaseName): Entry {
  const own = difference(BUILT_IN_PROFILES[base](profile.table), profile) as Record<string, unknown> | undefined
  return { extends: base, table: profile.table, ...own }
}

/** Undefined where both say the same; lists and nulls are said whole. */
function difference(base: unknown, own: unknown): unknown {
  if (!isObject(base) || !isObject(own)) return JSON.stringify(base) === JSON.stringify(own) ? undefined : own
  const changed = Object.entries(own)
    .map(([key, value]) => [key, difference(base[key], value)] as const)
    .filter(([, value]) => value !== undefined)
  return changed.length > 0 ? Object.fromEntries(changed) : undefined
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

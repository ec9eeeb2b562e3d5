/** The file of tables as `attach` uses it: read whole, added to, and put in place in one step or not at all. */
import { existsSync, readFileSync, realpathSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'

import type { Profile } from '../db/profile.ts'
import { parseProfiles, ProfileError } from '../db/profile-file.ts'
import type { Entry } from './entry.ts'

export interface TablesFile {
  path: string
  /** The parsed JSON; null when there is no file yet. */
  content: unknown
  profiles: Profile[]
}

/** Throws a ProfileError when there is a file that cannot be used: it is somebody's work, and stays as it is. */
export function readTablesFile(path: string): TablesFile {
  if (/\.[cm]?[jt]s$/.test(path)) {
    throw new ProfileError(path, ['it is a module, which attach cannot add to; name a JSON file with --file'])
  }
  if (!existsSync(path)) return { path, content: null, profiles: [] }
  const content = parseJson(path)
  return { path, content, profiles: isEmpty(content) ? [] : parseProfiles(content, path) }
}

/** Adds one table behind the others. What was there stays, down to keys we do not know. */
export function addEntry({ path, content }: TablesFile, entry: Entry): void {
  const merged = Array.isArray(content)
    ? [...(content as unknown[]), entry]
    : { ...(content as object | null), tables: [...((content as { tables?: unknown[] } | null)?.tables ?? []), entry] }
  parseProfiles(merged, path)
  // A link stays a link: the file it points to is replaced.
  const target = existsSync(path) ? realpathSync(path) : path
  const temporary = `${target}.${process.pid}.tmp`
  try {
    const mode = existsSync(target) ? statSync(target).mode : 0o644
    writeFileSync(temporary, `${JSON.stringify(merged, null, 2)}\n`, { mode, flag: 'wx', flush: true })
    renameSync(temporary, target)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  }
}

function parseJson(path: string): unknown {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as unknown
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new ProfileError(path, [`expected JSON (${why}); mend or move the file, nothing was changed in it`])
  }
}

/** A list without tables is a file somebody has prepared, not a mistake. */
function isEmpty(content: unknown): boolean {
  const list = Array.isArray(content) ? (content as unknown[]) : (content as { tables?: unknown } | null)?.tables
  return Array.isArray(list) && list.length === 0
}

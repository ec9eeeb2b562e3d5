/** A Python that can speak to PostgreSQL, where there is one. */
import { spawnSync } from 'node:child_process'

/** Null without psycopg; `.ci/run` installs it, so with CI=true its absence fails a test instead of skipping it. */
export function findPython(): string | null {
  const candidates = ['/usr/bin/python3', 'python3']
  return candidates.find((python) => spawnSync(python, ['-c', 'import psycopg']).status === 0) ?? null
}

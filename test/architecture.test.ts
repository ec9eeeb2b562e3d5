/** Imports flow one way, SQL stands only under src/db, and nothing of a Bun-only kind stands where Node users import. */
import { Glob } from 'bun'
import { expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

const SRC = resolve(import.meta.dirname, '..', 'src')
const files = [...new Glob('**/*.{ts,tsx}').scanSync(SRC)].map((path) => ({
  path,
  text: readFileSync(join(SRC, path), 'utf8'),
}))

/** Which folder may import which. Worker and reaper never meet: they meet only in the table. */
const ARROWS: Record<string, string[]> = {
  'result.ts': [],
  'index.ts': ['config', 'db', 'dispatch', 'job', 'reaper', 'result.ts', 'storage', 'telemetry', 'worker'],
  storage: ['job'],
  job: [],
  config: ['job'],
  db: ['job'],
  telemetry: ['job', 'result.ts'],
  dispatch: ['db', 'job', 'telemetry'],
  worker: ['db', 'dispatch', 'job', 'result.ts', 'storage', 'telemetry'],
  reaper: ['db', 'dispatch', 'job', 'telemetry'],
  operator: ['db', 'dispatch', 'job', 'result.ts', 'telemetry'],
  dashboard: ['config', 'db', 'job', 'operator', 'reaper', 'result.ts', 'telemetry'],
  prove: ['config', 'db', 'demo', 'job', 'worker'],
  demo: ['db', 'job', 'storage', 'worker'],
  cli: ['config', 'db', 'dispatch', 'job', 'operator', 'prove', 'reaper', 'result.ts', 'telemetry'],
}

const folderOf = (path: string): string => path.split('/')[0] ?? path

test.each(files.map(({ path, text }) => [path, text]))('%s imports only where arrows lead', (path, text) => {
  const allowed = ARROWS[folderOf(path)]
  expect(
    allowed,
    `${folderOf(path)} has no place in the arrows; add it to this test and to docs/architecture.md`,
  ).toBeDefined()
  const targets = [...text.matchAll(/from '(\.[^']+)'/g)].map(([, to = '']) =>
    folderOf(relative(SRC, resolve(SRC, dirname(path), to))),
  )
  for (const target of targets) expect([...(allowed ?? []), folderOf(path)], `${path} → ${target}`).toContain(target)
})

test('all SQL stands under src/db', () => {
  const offenders = files.filter(
    ({ path, text }) =>
      folderOf(path) !== 'db' &&
      /sql`|\b(select|update|insert into|delete from)\b[^'"\n]*\b(from|set|values)\b/i.test(
        text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/.*/g, ''),
      ),
  )
  expect(offenders.map(({ path }) => path)).toEqual([])
})

test('only servers, the bundler of the page and the width of a text on a terminal use Bun itself, so that the lease functions also run elsewhere', () => {
  const offenders = files.filter(({ text }) => /\bBun\./.test(text)).map(({ path }) => path)
  expect(offenders.toSorted()).toEqual(['cli/text.ts', 'dashboard/page.ts', 'telemetry/server.ts'])
})

test('only scripts read the environment, trap signals or exit', () => {
  const offenders = files.filter(({ text }) => /process\.(env|on\('SIG|exit\()/.test(text)).map(({ path }) => path)
  expect(offenders.toSorted()).toEqual([
    'config/config.ts',
    'config/describe.ts',
    'db/crash-filter.ts',
    'db/embedded.ts',
  ])
})

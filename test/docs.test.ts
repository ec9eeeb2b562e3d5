/** Documents held against the code: what they list is what there is. */
import { describe, expect, test } from 'bun:test'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

import { type Setting, SETTINGS, STAGE_CONCURRENCY, STAGE_FACTOR, STAGE_STALL } from '../src/config/settings.ts'
import { parseProfiles } from '../src/db/profile-file.ts'
import { snakeCaseProfile } from '../src/db/profiles.ts'
import * as product from '../src/index.ts'
import { DEFAULT_EVENT_NAMES } from '../src/job/event.ts'
import { type MetricDefinition, METRICS } from '../src/telemetry/metrics.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGES = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
]
const settings = Object.values<Setting>(SETTINGS)

function read(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8')
}

/** What stands in fences of one language, in order. */
function fences(text: string, language: string): string[] {
  return [...text.matchAll(/^```(\w+)\n([\s\S]*?)^```/gm)]
    .filter(([, found]) => found === language)
    .map(([, , body = '']) => body)
}

describe('.env.example', () => {
  const lines = read('.env.example').split('\n')
  const entries = lines.flatMap((line, at) => {
    const [, name, value] = /^# ([A-Z][A-Z0-9_]*)=(.*)$/.exec(line) ?? []
    return name === undefined || value === undefined ? [] : [{ name, value, at }]
  })

  test('lists every variable once, in order of precedence, and no other', () => {
    const bySetting = Map.groupBy(
      entries,
      ({ name }) => settings.find((setting) => setting.names.includes(name))?.names[0] ?? `unknown ${name}`,
    )
    const listed = Object.fromEntries([...bySetting].map(([first, group]) => [first, group.map(({ name }) => name)]))
    expect(listed).toEqual(Object.fromEntries(settings.map(({ names }) => [names[0], [...names]])))
  })

  test('sets nothing by itself', () => {
    expect(lines.filter((line) => line !== '' && !line.startsWith('#'))).toEqual([])
  })

  test.each(settings.map((setting) => [setting.names[0], setting] as const))(
    '%s has its help above it and its default, or an example',
    (first, setting) => {
      const start = entries.find(({ name }) => name === first)?.at ?? 0
      const above = setting.fallback === null ? [`# ${setting.help}`, '# No default. Example:'] : [`# ${setting.help}`]
      expect(lines.slice(start - above.length, start)).toEqual(above)
      const values = entries.filter(({ name }) => setting.names.includes(name)).map(({ value }) => value)
      const { fallback } = setting
      if (fallback !== null) expect(values).toEqual(setting.names.map(() => fallback))
      for (const value of values) expect(setting.kind.safeParse(value).success).toBe(true)
    },
  )
})

describe('docs/configuration.md', () => {
  const rows = [...read('docs/configuration.md').matchAll(/^\| (`[A-Z].*?) \| (.*?) \|/gm)].map(
    ([, names = '', fallback = '']) => ({
      names: [...names.matchAll(/`([A-Z0-9_]+)`/g)].map(([, name]) => name),
      fallback: /^`(.*)`$/.exec(fallback.trim())?.[1],
    }),
  )

  test.each(settings.map((setting) => [setting.names[0], setting] as const))(
    'has a row for %s with its names in order and its default',
    (first, { names, fallback }) => {
      const row = rows.find((each) => each.names[0] === first)
      expect(row?.names).toEqual([...names])
      expect(row?.fallback ?? null).toBe(fallback)
    },
  )

  test('names no variable that does not exist', () => {
    const known = settings.flatMap(({ names }) => [...names])
    const named = [...read('docs/configuration.md').matchAll(/`([A-Z]+(?:_[A-Z]+)+)\b/g)].map(([, name = '']) => name)
    const byStage = [STAGE_FACTOR, STAGE_CONCURRENCY, STAGE_STALL]
    expect(named.filter((name) => !known.includes(name) && !byStage.some((each) => each.test(name)))).toEqual([])
  })
})

describe('docs/metrics.md', () => {
  const code = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map(([, text = '']) => text)
  const rows = read('docs/metrics.md')
    .split('\n')
    .map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
    .filter((cells) => ['counter', 'gauge', 'histogram'].includes(cells[2] ?? ''))
    .map(([seed = '', name = '', kind = '', labels = '', meaning = '']) => ({
      name: code(name)[0],
      kind,
      labels: code(labels),
      seed: code(seed)[0] ?? seed,
      meaning,
    }))

  test('its table has every metric, in the order of the list', () => {
    expect(rows.map(({ name }) => name)).toEqual(Object.keys(METRICS))
  })

  test.each(Object.entries<MetricDefinition>(METRICS))(
    '%s has its type, labels and seed name',
    (name, { kind, labels, seed }) => {
      const row = rows.find((each) => each.name === name)
      expect(row).toMatchObject({ kind, labels: [...labels], seed: seed ?? '–' })
      expect(row?.meaning).not.toBe('')
    },
  )
})

describe('docs/state-machine.md', () => {
  const diagram = fences(read('docs/state-machine.md'), 'mermaid').join('\n')
  const named = [
    ...new Set(diagram.split('\n').flatMap((line) => /: (.*)$/.exec(line)?.[1]?.match(/\b[a-z]+[A-Z]\w*/g) ?? [])),
  ]

  test('its arrows name only functions that src/db exports', async () => {
    const modules = await Promise.all(
      readdirSync(join(ROOT, 'src/db')).map(
        (file) => import(join(ROOT, 'src/db', file)) as Promise<Record<string, unknown>>,
      ),
    )
    const exported = modules.flatMap((module) =>
      Object.keys(module).filter((name) => typeof module[name] === 'function'),
    )
    expect(named.filter((name) => !exported.includes(name))).toEqual([])
  })

  test('its arrows name every statement that changes a job', () => {
    const changing = ['enqueue', 'claim', 'heartbeat', 'attempt', 'finish', 'reap', 'undispatched', 'operate']
      .flatMap((file) =>
        [...read(`src/db/${file}.ts`).matchAll(/^export (?:async )?function (\w+)/gm)].map(([, name = '']) => name),
      )
      .filter((name) => !/^(read|preview|count|is|has|in[A-Z])|(Key|Statement|Of)$/.test(name))
    expect(named.toSorted()).toEqual(changing.toSorted())
  })
})

test('docs/workers.md has every event in its table', () => {
  const table = read('docs/workers.md').split('\n## Events\n')[1]?.split('\n## ')[0] ?? ''
  const told = [...table.matchAll(/^\| (`.*?) \|/gm)].flatMap(
    ([, cell = '']) => cell.match(/[^`]+(?=`(?:,|$| ))/g) ?? [],
  )
  expect(told).toEqual(expect.arrayContaining(Object.values(DEFAULT_EVENT_NAMES)))
})

test('docs/dashboard.md has every path of the API in its table, and every screen', () => {
  const page = read('docs/dashboard.md')
  const api = read('src/dashboard/api.ts')
  const paths = new Set([...api.matchAll(/'(\/api\/[a-z-]+)'/g)].map(([, path]) => path))
  expect(new Set([...page.matchAll(/^\| `(\/api\/[a-z-]+)`/gm)].map(([, path]) => path))).toEqual(paths)
  const screens = [...read('src/dashboard/ui/main.tsx').matchAll(/title: '(\w+)', show/g)].map(([, title]) => title)
  expect([...page.matchAll(/^\| ([A-Z]\w+) +\| .*[?.,]/gm)].map(([, title]) => title)).toEqual(
    expect.arrayContaining(screens),
  )
})

test('docs/architecture.md has every file of src in its tree', () => {
  const tree = fences(read('docs/architecture.md'), 'text')[0] ?? ''
  const files = readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\.tsx?$/.test(file),
  )
  const missing = files.filter((file) => {
    const folder = dirname(file)
    const part = folder === '.' ? tree : (tree.split(`\n  ${folder}/`)[1] ?? '').split(/\n {2}[\w/]+\//)[0]
    return !new RegExp(`^ +${basename(file).replace(/\.tsx?$/, '')}(\\.ts)? `, 'm').test(part ?? '')
  })
  expect(missing).toEqual([])
})

describe.each(PAGES)('%s', (page) => {
  const text = read(page)

  test('links only to files and headings that are there', () => {
    const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
      .map(([, target = '']) => target)
      .filter((target) => !/^https?:/.test(target))
    const broken = targets.filter((target) => {
      const [file = '', heading] = target.split('#')
      const path = file === '' ? join(ROOT, page) : join(ROOT, dirname(page), file)
      return !existsSync(path) || (heading !== undefined && !headings(path).includes(heading))
    })
    expect(broken).toEqual([])
  })

  test('names only commands that package.json has', () => {
    const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> }
    const commands = [...text.matchAll(/\b(?:npm|bun) run ([a-z][\w:-]*)/g)].map(([, name = '']) => name)
    const isTestNamed = /\bnpm test\b/.test(text)
    expect([...commands, ...(isTestNamed ? ['test'] : [])].filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
  })
})

test.each(['README.md', 'docs/workers.md'])('%s imports only what the product exports', (page) => {
  const code = [...fences(read(page), 'ts'), ...fences(read(page), 'sh')].join('\n')
  const names = [...code.matchAll(/import \{([^}]+)\} from '(?:leasehold|\.\/src\/index\.ts)'/g)].flatMap(
    ([, list = '']) => list.split(','),
  )
  const values = names.map((name) => name.trim()).filter((name) => !name.startsWith('type '))
  expect(values.length).toBeGreaterThan(0)
  expect(values.filter((name) => !Object.hasOwn(product, name))).toEqual([])
})

/** Headings as the anchors a link can point to. */
function headings(path: string): string[] {
  return [...readFileSync(path, 'utf8').matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
    title
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(' ', '-'),
  )
}

test('docs/attach.md: its entries can be read, and its table has every entry there is', () => {
  const page = read('docs/attach.md')
  for (const block of fences(page, 'json')) expect(parseProfiles(JSON.parse(block), 'attach.md')).toHaveLength(1)
  const paths = (value: unknown, at: string): string[] =>
    typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
      ? Object.entries(value).flatMap(([key, inner]) => paths(inner, at === '' ? key : `${at}.${key}`))
      : [at]
  const { statuses: _, ...profile } = snakeCaseProfile('jobs')
  const rows = page.split('## Every entry')[1]?.split('\n## ')[0] ?? ''
  const named = [...rows.matchAll(/^\| (`.*?) +\|/gm)].flatMap(([, cell = '']) => cell.match(/[\w.]+(?=`)/g) ?? [])
  const isNamed = (path: string): boolean =>
    path.startsWith('events.names') ||
    named.some((name) => path === name || (name.startsWith('.') && path.endsWith(name)))
  expect(paths(profile, '').filter((path) => !isNamed(path))).toEqual([])
})

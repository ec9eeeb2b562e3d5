/** Files that are copied to where we cannot run them, held against the code: programs, settings and times that belong together. */
import { describe, expect, test } from 'bun:test'
import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'

import { loadConfig } from '../src/config/config.ts'
import { type Setting, SETTINGS } from '../src/config/settings.ts'

const ROOT = join(import.meta.dirname, '..')
const DEPLOY = join(ROOT, 'docs', 'deploy')
const read = (name: string): string => readFileSync(join(DEPLOY, name), 'utf8')
const variables = Object.values<Setting>(SETTINGS).flatMap(({ names }) => [...names])
const { worker, database } = loadConfig({})

interface Service {
  image: string
  command?: string[]
  environment?: Record<string, string>
  stop_grace_period?: string
  init?: boolean
  ports?: string[]
  build?: { dockerfile: string; args?: Record<string, string> }
}
const compose = Bun.YAML.parse(read('compose.yml')) as { services: Record<string, Service> }
const programs = Object.entries(compose.services).filter(([, { build }]) => build !== undefined)

interface App {
  name: string
  args: string[]
  kill_timeout: number
}
const { apps } = createRequire(import.meta.url)(join(DEPLOY, 'ecosystem.config.cjs')) as { apps: App[] }

const unit = (name: string): string => read(`leasehold-${name}.service`)
/** The last value of a directive, as seconds. */
function seconds(text: string, directive: string): number {
  const [, count = 'NaN', minutes] = new RegExp(`^${directive}=(\\d+)(min)?$`, 'm').exec(text) ?? []
  return Number(count) * (minutes ? 60 : 1)
}
const appNamed = (name: string): App | undefined => apps.find((app) => app.name === name)

test.each([
  ['systemd', seconds(unit('worker'), 'TimeoutStopSec')],
  ['PM2', (appNamed('leasehold-worker')?.kill_timeout ?? 0) / 1000],
  ['compose', Number.parseInt(compose.services.worker?.stop_grace_period ?? '', 10)],
])('%s gives a worker longer than it takes for its jobs, and for giving the rest back', (_, sec) => {
  expect(sec).toBeGreaterThanOrEqual(worker.shutdownTimeoutSec + 15)
})

test.each([
  ['systemd', seconds(unit('reaper'), 'TimeoutStopSec')],
  ['PM2', (appNamed('leasehold-reaper')?.kill_timeout ?? 0) / 1000],
  ['compose', Number.parseInt(compose.services.reaper?.stop_grace_period ?? '', 10)],
])('%s gives a reaper longer than one statement may take', (_, sec) => {
  expect(sec).toBeGreaterThan(database.queryTimeoutSec)
})

test('systemd waits longer for a wedged worker than the worker itself', () => {
  expect(seconds(unit('worker'), 'WatchdogSec')).toBeGreaterThan(worker.wedgeTimeoutSec)
})

test.each([
  ['the reaper unit', [/ExecStart=.* (scripts\/\S+)$/m.exec(unit('reaper'))?.[1]]],
  ['the worker unit', [/ExecStart=.* (scripts\/\S+)$/m.exec(unit('worker'))?.[1]]],
  ['the PM2 file', apps.flatMap(({ args }) => args)],
  ['compose', programs.flatMap(([, { command = [] }]) => command.filter((word) => word.includes('/')))],
])('%s starts programs that are there', (_, scripts) => {
  expect(scripts).not.toBeEmpty()
  expect(scripts.filter((script) => !existsSync(join(ROOT, script ?? 'nothing')))).toEqual([])
})

test('what they set are settings of ours', () => {
  const inUnits = [unit('reaper'), unit('worker')]
    .flatMap((text) => [...text.matchAll(/^Environment=(.*)$/gm)].flatMap(([, list = '']) => list.split(' ')))
    .map((assignment) => assignment.split('=')[0])
  const inCompose = programs.flatMap(([, { environment = {} }]) => Object.keys(environment))
  const inImage = [...read('Dockerfile').matchAll(/^ENV (.*)$/gm)].flatMap(
    ([, list = '']) => list.match(/\w+(?==)/g) ?? [],
  )
  const ofOthers = ['BUN_RUNTIME_TRANSPILER_CACHE_PATH', '<<']
  const unknown = [...inUnits, ...inCompose, ...inImage].filter(
    (name) => !variables.includes(name ?? '') && !ofOthers.includes(name ?? ''),
  )
  expect(unknown).toEqual([])
})

describe('the image', () => {
  const lines = read('Dockerfile').split('\n')
  const all = (word: string): string[] =>
    lines.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1))

  test('is Debian with the Bun that the tests run on', () => {
    const { devDependencies } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      devDependencies: Record<string, string>
    }
    expect(all('FROM').map((from) => from.split(' ')[0])).toEqual(
      Array.from({ length: 2 }, () => `oven/bun:${devDependencies.bun}-slim`),
    )
  })

  test('holds every folder that its programs import from, lets nothing else into the build, and runs as nobody special', () => {
    const copied = all('COPY')
      .filter((line) => !line.startsWith('--from'))
      .flatMap((line) => line.split(' ').slice(0, -1))
    expect(copied.filter((path) => !existsSync(join(ROOT, path)))).toEqual([])
    expect(copied).toEqual(
      expect.arrayContaining(['src', 'scripts', 'migrations', 'bunfig.toml', 'package.json', 'bun.lock']),
    )
    const letIn = [...read('Dockerfile.dockerignore').matchAll(/^!(.*)$/gm)].map(([, path = '']) => path)
    expect(letIn.toSorted()).toEqual([...new Set(copied)].toSorted())
    expect(all('USER').at(-1)).toBe('bun')
  })

  test('has an init in every service of compose, and listens beyond its container only with a token', () => {
    for (const [, { init }] of programs) expect(init).toBe(true)
    expect(compose.services.reaper?.environment).toMatchObject({
      HTTP_HOST: '0.0.0.0',
      OPERATOR_TOKEN: expect.stringContaining(':?'),
    })
    for (const { ports = [] } of Object.values(compose.services))
      for (const port of ports) expect(port).toStartWith('127.0.0.1:')
  })
})

/** Alerts, their tests and the runbook, held against what the programs export and understand, and against promtool. */
import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { runCli } from '../support/cli.ts'
import { freshDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { ROOT, runProgram } from '../support/program.ts'
import { faultsIn, labelsOf, namesIn } from '../support/promql.ts'
import { isPromtoolExpected, promtool } from '../support/promtool.ts'

interface Rule {
  alert?: string
  record?: string
  expr: string
  labels?: { severity?: string }
  annotations?: Record<string, string>
}
interface RuleTest {
  input_series: { series: string }[]
  alert_rule_test?: { alertname: string; exp_alerts: unknown[] }[]
  promql_expr_test?: { expr: string }[]
}

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const { groups } = Bun.YAML.parse(read('docs/deploy/prometheus/alerts.yml')) as { groups: { rules: Rule[] }[] }
const { tests } = Bun.YAML.parse(read('docs/deploy/prometheus/alerts.test.yml')) as { tests: RuleTest[] }
const rules = groups.flatMap((group) => group.rules)
const alerts = rules.filter((rule) => rule.alert !== undefined)
const recorded = Object.fromEntries(rules.flatMap(({ record }) => (record ? [[record, ['table']]] : [])))

describe('alerts', () => {
  test.each(rules.map((rule) => [rule.alert ?? rule.record ?? '', rule.expr]))(
    '%s names only what we export',
    (_, expr) => {
      expect(faultsIn(expr, recorded)).toEqual([])
    },
  )

  test.each(alerts.map(({ alert = '', ...rule }) => [alert, rule] as const))(
    '%s has a severity, one line to be woken by, and a section in the runbook that names it',
    (alert, { labels, annotations = {} }) => {
      expect(['critical', 'warning']).toContain(labels?.severity ?? '')
      expect(annotations.summary?.replaceAll(/\{\{.*?\}\}/g, 'jobs').length).toBeLessThan(80)
      expect(annotations.description).not.toBeEmpty()
      const [file, anchor] = annotations.runbook_url?.split('#') ?? []
      expect(file).toBe('docs/operations.md')
      expect(Object.keys(sections)).toContain(anchor ?? '')
      expect(sections[anchor ?? '']).toContain(alert)
    },
  )

  test('each one fires in the tests of the rules, and docs/metrics.md lists it', () => {
    const fired = tests.flatMap(({ alert_rule_test: all = [] }) =>
      all.filter(({ exp_alerts: expected }) => expected.length > 0).map(({ alertname }) => alertname),
    )
    const names = alerts.map(({ alert }) => alert ?? '')
    expect([...new Set(fired)].toSorted()).toEqual(names.toSorted())
    const listed = [
      ...(read('docs/metrics.md').split('\n## What to alert on\n')[1] ?? '').matchAll(/`(Leasehold\w+)`/g),
    ]
    expect(listed.map(([, name]) => name)).toEqual(names)
  })

  test('their tests feed only series that exist, with all of their labels', () => {
    const faults = tests
      .flatMap(({ input_series: all }) => all.map(({ series }) => series))
      .filter((series) => {
        const { metrics, matched } = namesIn(series)
        const labels = labelsOf(metrics[0] ?? '')
        return (
          labels === null ||
          labels.toSorted().join() !==
            matched
              .map(({ label }) => label)
              .toSorted()
              .join()
        )
      })
    expect(faults).toEqual([])
  })
})

/** The sections of the runbook by their anchors. */
const sections = Object.fromEntries(
  read('docs/operations.md')
    .split(/^#+ (?=.+$)/m)
    .map((section) => [
      (section.split('\n')[0] ?? '')
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
        .trim()
        .replaceAll(' ', '-'),
      section,
    ]),
)

const commands = ['docs/operations.md', 'docs/deploy.md'].flatMap((page) =>
  [...read(page).matchAll(/\bbun run cli ([a-z-]+)([^\n#`]*)/g)].map(([, verb = '', rest = '']) => ({ verb, rest })),
)

describe.each([...new Set(commands.map(({ verb }) => verb))])('the runbook says leasehold %s', (verb) => {
  test('which is a command, with the options it is given', async () => {
    const { code, stdout } = await runCli([verb, '--help'], {})
    expect(code).toBe(0)
    const uses = commands.filter((command) => command.verb === verb)
    expect(stdout).toContain(`leasehold ${verb}`)
    for (const { rest } of uses) for (const [option] of rest.matchAll(/--[a-z-]+/g)) expect(stdout).toContain(option)
  })
})

describe.if(isPromtoolExpected)('promtool', () => {
  test('accepts the rules, and the configuration that loads them', () => {
    expect(promtool(['check', 'rules', 'alerts.yml'])).toMatchObject({ status: 0 })
    const { status, output } = promtool(['check', 'config', 'prometheus.yml'])
    expect(output).toContain(`${rules.length} rules found`)
    expect(status).toBe(0)
  })

  test('passes their tests', () => {
    const { status, output } = promtool(['test', 'rules', 'alerts.test.yml'])
    expect(output).toContain('SUCCESS')
    expect(status).toBe(0)
  })

  test('has one complaint about what a reaper serves: the name of a seed', async () => {
    await using t = await freshDatabase()
    await using reaper = runProgram('reaper.ts', { DATABASE_URL: t.url })
    const http = String((await reaper.said('reaper started')).http)
    const served = async (): Promise<string> => (await fetch(`${http}/metrics`)).text()
    await eventually(async () => (await served()).includes('job_rows{table="asr_jobs"'))
    const text = await served()
    const { output } = promtool(['check', 'metrics'], text)
    expect(output.trim().split('\n')).toEqual([
      'reaper_scan_duration_ms metric names should not contain abbreviated units',
    ])
    const series = [...text.matchAll(/^([a-z]\w+?)(?:_bucket|_sum|_count)?(?:\{|\s)/gm)].map(([, name]) => name)
    const named = rules.flatMap(({ expr }) => namesIn(expr).metrics)
    const missing = named.filter((name) => !(name in recorded) && !series.includes(name.replace(/_bucket$/, '')))
    expect(missing).toEqual([])
  })
})

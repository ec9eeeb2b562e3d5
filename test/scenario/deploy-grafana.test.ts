/** The Grafana dashboard, held against what the programs export, and against promtool. */
import { describe, expect, test } from 'bun:test'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { type MetricDefinition, METRICS } from '../../src/telemetry/metrics.ts'
import { ROOT } from '../support/program.ts'
import { faultsIn, labelsOf, namesIn } from '../support/promql.ts'
import { isPromtoolExpected, promtool } from '../support/promtool.ts'
import { testFolder } from '../support/test-folder.ts'

interface Panel {
  id: number
  type: string
  title: string
  description?: string
  gridPos: { x: number; y: number; w: number; h: number }
  datasource?: { type: string; uid: string }
  targets?: { expr: string; legendFormat: string; datasource: { uid: string } }[]
}
interface Variable {
  name: string
  type: string
  query: string | { query: string }
}
interface Board {
  uid: string
  title: string
  schemaVersion: number
  templating: { list: Variable[] }
  panels: Panel[]
}

const board = JSON.parse(readFileSync(join(ROOT, 'docs/deploy/grafana/dashboard.json'), 'utf8')) as Board
const panels = board.panels.filter(({ type }) => type !== 'row')
const targets = panels.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })))

describe('the dashboard', () => {
  test.each(targets.map(({ title, expr }) => [title, expr]))('%s names only what we export: %s', (_, expr) => {
    expect(faultsIn(expr)).toEqual([])
  })

  test.each(targets.map(({ title, expr, legendFormat }) => [title, expr, legendFormat]))(
    '%s names its lines by labels that are left: %s',
    (_, expr, legend) => {
      const { grouped, metrics } = namesIn(expr)
      const left = /\bby \(/.test(expr)
        ? grouped
        : /^(sum|min|max)\(/.test(expr)
          ? []
          : metrics.flatMap((each) => labelsOf(each) ?? [])
      for (const [, label = ''] of legend.matchAll(/\{\{(\w+)\}\}/g)) expect(left).toContain(label)
    },
  )

  test('a rate follows the scrape interval and the zoom, and belongs to a counter or a histogram', () => {
    const definitions: Record<string, MetricDefinition> = METRICS
    for (const { expr } of targets) {
      for (const [, range = ''] of expr.matchAll(/\[([^\]]+)\]/g)) expect(range).toBe('$__rate_interval')
      for (const [, name = ''] of expr.matchAll(/(?:rate|increase)\((\w+)/g)) {
        expect(['counter', 'histogram']).toContain(definitions[name.replace(/_bucket$/, '')]?.kind ?? '')
      }
    }
  })

  test('it can be imported anywhere: its data source is a variable, its uid is fixed, nothing of another Grafana is left', () => {
    expect(board).toMatchObject({ uid: 'leasehold', schemaVersion: expect.any(Number) })
    expect(board.templating.list.map(({ name }) => name)).toEqual(['datasource', 'table', 'stage'])
    expect(board.templating.list[0]).toMatchObject({ type: 'datasource', query: 'prometheus' })
    for (const { datasource } of [...panels, ...targets]) expect(datasource?.uid).toBe('${datasource}')
    expect(board).not.toContainAnyKeys(['__inputs', 'id'])
    for (const { query } of board.templating.list.slice(1)) {
      const [, series = '', label = ''] = /^label_values\((.+), (\w+)\)$/.exec((query as { query: string }).query) ?? []
      expect(faultsIn(series)).toEqual([])
      expect(labelsOf(namesIn(series).metrics[0] ?? '')).toContain(label)
    }
  })

  test('no panel covers another, each has an id and says what it shows', () => {
    expect(new Set(board.panels.map(({ id }) => id)).size).toBe(board.panels.length)
    const taken = new Map<string, string>()
    for (const { title, gridPos } of board.panels) {
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x += 1) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y += 1) {
          expect(taken.get(`${x},${y}`)).toBeUndefined()
          taken.set(`${x},${y}`, title)
        }
      }
    }
    expect(panels.filter(({ description }) => !description)).toEqual([])
  })
})

test.if(isPromtoolExpected)('promtool understands every expression', () => {
  using folder = testFolder()
  const rules = targets.map(({ expr }, at) => ({
    record: `panel:${at}`,
    expr: expr.replaceAll('$__rate_interval', '5m'),
  }))
  const file = folder.write('panels.yml', JSON.stringify({ groups: [{ name: 'panels', rules }] }))
  const { status, output } = promtool(['check', 'rules', file])
  expect(output).toContain(`${targets.length} rules found`)
  expect(status).toBe(0)
})

/** What an expression of PromQL names: enough to hold alerts and dashboards against the list of metrics. */
import { type MetricDefinition, METRICS } from '../../src/telemetry/metrics.ts'

/** Words that stand where a metric could. */
const KEYWORDS = new Set(['and', 'or', 'unless', 'bool', 'offset', 'on', 'ignoring', 'by', 'without'])
/** Labels that Prometheus itself puts on everything it scrapes. */
const OF_THE_TARGET = ['job', 'instance']
const OF_A_HISTOGRAM = ['_bucket', '_sum', '_count']

export interface Named {
  metrics: string[]
  /** The labels asked of each metric in its braces. */
  matched: { metric: string; label: string }[]
  /** The labels in by (…) and on (…). */
  grouped: string[]
}

export function namesIn(expression: string): Named {
  const plain = expression.replaceAll(/"[^"]*"/g, '""')
  const grouped: string[] = []
  const matched: Named['matched'] = []
  const withoutGroups = plain.replaceAll(/\b(?:by|on|without|ignoring) \(([^)]*)\)/g, (_, list: string) => {
    grouped.push(...list.split(',').map((label) => label.trim()))
    return ''
  })
  const withoutMatchers = withoutGroups.replaceAll(/([\w:]+)\{([^}]*)\}/g, (_, metric: string, list: string) => {
    for (const [, label = ''] of list.matchAll(/(\w+)\s*[!=~]+/g)) matched.push({ metric, label })
    return metric
  })
  const metrics = [...withoutMatchers.replaceAll(/\[[^\]]*\]/g, '').matchAll(/[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])/g)]
    .map(([name]) => name)
    .filter((name) => !KEYWORDS.has(name))
  return { metrics, matched, grouped }
}

/** The labels a metric has when it is scraped; null when we export no such metric. */
export function labelsOf(metric: string): string[] | null {
  const suffix = OF_A_HISTOGRAM.find((each) => metric.endsWith(each)) ?? ''
  const base = metric.slice(0, metric.length - suffix.length)
  const definitions: Record<string, MetricDefinition> = METRICS
  const [whole, histogram] = [definitions[metric], definitions[base]]
  if (whole && whole.kind !== 'histogram') return [...whole.labels, ...OF_THE_TARGET]
  if (histogram?.kind !== 'histogram' || suffix === '') return null
  return [...histogram.labels, ...OF_THE_TARGET, ...(suffix === '_bucket' ? ['le'] : [])]
}

/** What is wrong with the names in an expression; empty when all of them exist. Recorded names are given with their labels. */
export function faultsIn(expression: string, recorded: Record<string, string[]> = {}): string[] {
  const { metrics, matched, grouped } = namesIn(expression)
  const known = (metric: string): string[] | null => recorded[metric] ?? labelsOf(metric)
  const all = new Set(metrics.flatMap((metric) => known(metric) ?? []))
  return [
    ...(metrics.length === 0 ? [`no metric in ${expression}`] : []),
    ...metrics.filter((metric) => known(metric) === null).map((metric) => `there is no metric ${metric}`),
    ...matched
      .filter(({ metric, label }) => known(metric)?.includes(label) === false)
      .map(({ metric, label }) => `${metric} has no label ${label}`),
    ...grouped.filter((label) => !all.has(label)).map((label) => `nothing in ${expression} has a label ${label}`),
  ]
}

/** Every setting in force, and where its value came from. For `config` on the command line and the page of the reaper. */
import type { Environment } from './config.ts'
import { type Setting, SETTINGS, STAGE_CONCURRENCY, STAGE_FACTOR, STAGE_STALL } from './settings.ts'

export interface SettingInForce {
  /** The variable that decides, or the first of its names when none is set. */
  name: string
  /** As it would be written in the environment; null when it is unset and has no default. A secret is only said to be set. */
  value: string | null
  source: 'environment' | 'default' | 'unset'
  /** Other names that are set too and lose against this one. */
  overruled: string[]
  help: string
}

/** In the order of .env.example; the environment must have passed `loadConfig` before. */
export function settingsInForce(env: Environment = process.env): SettingInForce[] {
  const known = Object.values<Setting>(SETTINGS).map((setting) => inForce(setting, env))
  const names = new Set(Object.values<Setting>(SETTINGS).flatMap((setting) => [...setting.names]))
  const byStage = Object.keys(env)
    .filter(
      (name) => !names.has(name) && [STAGE_FACTOR, STAGE_CONCURRENCY, STAGE_STALL].some((each) => each.test(name)),
    )
    .toSorted()
    .map((name): SettingInForce => ({
      name,
      value: env[name] ?? null,
      source: 'environment',
      overruled: [],
      help: 'For one stage only.',
    }))
  return [...known, ...byStage]
}

function inForce({ names, fallback, help, secret }: Setting, env: Environment): SettingInForce {
  const [name, ...overruled] = names.filter((each) => env[each] !== undefined)
  if (name === undefined) {
    return { name: names[0], value: fallback, source: fallback === null ? 'unset' : 'default', overruled: [], help }
  }
  return { name, value: secret ? '(set, not shown)' : (env[name] ?? null), source: 'environment', overruled, help }
}

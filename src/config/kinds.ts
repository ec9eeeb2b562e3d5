/** What an environment variable may look like. Each kind is a zod schema whose message says what was expected. */
import { z } from 'zod'

/** Plain decimal numbers only: `10s`, `1e3`, `0x10`, `NaN` and blanks are mistakes, not numbers. */
const DECIMAL = /^\d+(\.\d+)?$/
const WHOLE = /^\d+$/

export function seconds(range: { min: number; max: number }): z.ZodType<number> {
  return numeric(DECIMAL, range, `a number of seconds from ${range.min} to ${range.max}`)
}

export function milliseconds(range: { min: number; max: number }): z.ZodType<number> {
  return numeric(WHOLE, range, `a whole number of milliseconds from ${range.min} to ${range.max}`)
}

export function wholeNumber(range: { min: number; max: number }): z.ZodType<number> {
  return numeric(WHOLE, range, `a whole number from ${range.min} to ${range.max}`)
}

export function factor(range: { min: number; max: number }): z.ZodType<number> {
  return numeric(DECIMAL, range, `a number from ${range.min} to ${range.max}`)
}

export function oneOf<const T extends string>(...values: T[]): z.ZodType<T> {
  return z.enum(values, { error: `expected one of ${values.join(', ')}` })
}

export function onOff(): z.ZodType<boolean> {
  return z.enum(['on', 'off'], { error: 'expected on or off' }).transform((value) => value === 'on')
}

export function zeroOrOne(): z.ZodType<boolean> {
  return z.enum(['0', '1'], { error: 'expected 0 or 1' }).transform((value) => value === '1')
}

export function text(expected: string): z.ZodType<string> {
  return z
    .string()
    .trim()
    .min(1, { error: `expected ${expected}` })
}

/** `jobs,asr_jobs`, `media.jobs`: plain or schema-qualified names, each once. */
export function tableNames(): z.ZodType<string[]> {
  const name = String.raw`[\p{L}_][\p{L}\p{N}_$]*(\.[\p{L}_][\p{L}\p{N}_$]*)?`
  const list = new RegExp(String.raw`^\s*${name}(\s*,\s*${name})*\s*$`, 'u')
  const error = 'expected table names separated by commas, each like jobs or media.jobs, none twice'
  return z
    .string()
    .regex(list, { error })
    .transform((value) => value.split(',').map((part) => part.trim()))
    .refine((names) => new Set(names).size === names.length, { error })
}

/** A schema in a place where only plain names are understood. */
export function plainName(expected: string): z.ZodType<string> {
  return z
    .string()
    .regex(/^[A-Za-z_]\w{0,49}$/, { error: `expected ${expected}: a letter, then letters, digits and _` })
}

/** A secret that somebody would have to guess: long enough, and fit for a header. */
export function token(): z.ZodType<string> {
  const error = 'expected at least 16 characters without blanks, e.g. from openssl rand -hex 24'
  return z.string().regex(/^[!-~]{16,200}$/, { error })
}

/** `ops.example.com, ops`: names as they stand in a Host header, without scheme or port. */
export function hostNames(): z.ZodType<string[]> {
  const name = String.raw`[A-Za-z0-9]([A-Za-z0-9.-]{0,252})`
  const error = 'expected host names separated by commas, each like ops.example.com, without scheme or port'
  return z
    .string()
    .regex(new RegExp(String.raw`^\s*${name}(\s*,\s*${name})*\s*$`), { error })
    .transform((value) => value.split(',').map((part) => part.trim().toLowerCase()))
}

export function postgresUrl(): z.ZodType<string> {
  const expected = 'expected a PostgreSQL URL like postgres://user:password@host:5432/database'
  return z.string().refine(isPostgresUrl, { error: expected })
}

function isPostgresUrl(value: string): boolean {
  try {
    const url = new URL(value)
    return /^postgres(ql)?:$/.test(url.protocol) && url.hostname !== '' && url.pathname.length > 1
  } catch {
    return false
  }
}

function numeric(shape: RegExp, range: { min: number; max: number }, expected: string): z.ZodType<number> {
  const error = `expected ${expected}`
  return z
    .string()
    .regex(shape, { error })
    .transform(Number)
    .pipe(z.number({ error }).min(range.min, { error }).max(range.max, { error }))
}

/** One logger: JSON lines on standard output, pretty on a terminal. A log that cannot be written never stops the work. */
import pino, { type Logger } from 'pino'
import pretty from 'pino-pretty'

export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error'>

export function createLog(options: { level: string; isTerminal?: boolean }): Logger {
  const isTerminal = options.isTerminal ?? process.stdout.isTTY
  const stream = isTerminal
    ? pretty({ sync: true, translateTime: 'SYS:HH:MM:ss.l', ignore: 'pid,hostname' })
    : pino.destination({ dest: 1, sync: true })
  // A closed pipe (`| head -1`) must not end the reaper.
  ;(stream as NodeJS.EventEmitter).on('error', () => undefined)
  return pino(
    {
      level: options.level,
      base: { pid: process.pid },
      redact: {
        paths: ['url', 'databaseUrl', 'password', 'token', '*.url', '*.password', '*.token'],
        censor: '[redacted]',
      },
      formatters: { level: (label) => ({ level: label }) },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    stream,
  )
}

/** For callers that bring no logger of their own. */
export const silentLog: Log = pino({ level: 'silent' })

/** Who works in the demo, and with which settings. */
import { symlinkSync } from 'node:fs'
import { join } from 'node:path'

import type { Place } from './place.ts'

export const WORKERS = ['Ada', 'Ben', 'Cleo']

/** Quick, so that a day fits into a minute; everything else is as it always is. */
export const PACE = { heartbeatSec: 1, leaseSec: 3, backoffMs: 200, maxAttempts: 10, clipsEach: 3 }

/** For the reaper and the workers alike. */
export function settingsFor({ storage, scratch }: Place): Record<string, string> {
  const { heartbeatSec, leaseSec, backoffMs, maxAttempts, clipsEach } = PACE
  const factor = String(leaseSec / heartbeatSec)
  return {
    HEARTBEAT_SEC: String(heartbeatSec),
    DEFAULT_LEASE_SEC: String(leaseSec),
    CLIP_SLA_FACTOR: factor,
    SIMULATED_SLA_FACTOR: factor,
    JOB_BACKOFF_MS_BASE: String(backoffMs),
    JOB_BACKOFF_MS_MAX: '1000',
    JOB_MAX_ATTEMPTS: String(maxAttempts),
    POLL_INTERVAL_SEC: '0.2',
    QUERY_TIMEOUT_SEC: '1',
    SHUTDOWN_TIMEOUT_SEC: '3',
    MAX_CONCURRENCY: String(clipsEach),
    REAPER_TABLES: 'jobs',
    WORKER_HANDLERS: join(import.meta.dirname, 'clips.ts'),
    WORKER_HTTP_PORT: '0',
    STORAGE_DIR: storage,
    SCRATCH_DIR: scratch,
  }
}

/** A PATH on which the handlers find it as `ffmpeg`, whatever it is called. */
export function withFfmpeg(folder: string, ffmpeg: string, path: string): string {
  symlinkSync(ffmpeg, join(folder, 'ffmpeg'))
  return `${folder}:${path}`
}

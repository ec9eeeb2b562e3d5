// Reaper and worker under PM2:  pm2 start docs/deploy/ecosystem.config.cjs
// Settings come from the shell that starts PM2, or from .env in the project's folder. docs/deploy.md explains the choices.
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const home = process.env.LEASEHOLD_HOME ?? join(__dirname, '..', '..')
const localBun = join(home, 'node_modules', '.bin', 'bun')

const common = {
  cwd: home,
  // Not `interpreter: 'bun'`: PM2 would load the program through require(), which refuses its top-level await.
  script: existsSync(localBun) ? localBun : 'bun',
  interpreter: 'none',
  exec_mode: 'fork',
  // Online when it says so: the reaper after its first pass, a worker when its handlers are loaded.
  wait_ready: true,
  listen_timeout: 30_000,
  // PM2 would send its SIGINT to every descendant. The worker would take it for a second signal and end at once, and
  // ffmpeg would die of it: the program itself passes the signal on, once.
  treekill: false,
  exp_backoff_restart_delay: 200,
  // Wrong settings: no restart mends them. PM2 then shows `waiting restart`, and waits for you.
  stop_exit_codes: [2],
  merge_logs: true,
}

module.exports = {
  apps: [
    {
      ...common,
      name: 'leasehold-reaper',
      args: ['scripts/reaper.ts'],
      // One is enough; more do no harm, they take turns.
      instances: 1,
      // Longer than one statement may take (QUERY_TIMEOUT_SEC).
      kill_timeout: 15_000,
    },
    {
      ...common,
      name: 'leasehold-worker',
      args: ['scripts/worker.ts'],
      instances: 1,
      // Above SHUTDOWN_TIMEOUT_SEC (25), with time to give the rest back. Raise both together.
      kill_timeout: 45_000,
    },
  ],
}

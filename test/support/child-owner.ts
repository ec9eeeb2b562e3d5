/** A worker in miniature, to be killed: starts one long child, prints its process number, and waits. */
import { createRunner } from '../../src/worker/child.ts'
import { recordingLog } from './processes.ts'

const { log, lines } = recordingLog()
const { run } = createRunner({ signal: new AbortController().signal, log })
const running = run(['sleep', '300'])
process.stdout.write(`${lines.find(({ msg }) => msg === 'child started')?.pid}\n`)
await running

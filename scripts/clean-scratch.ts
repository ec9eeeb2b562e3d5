/** bun run clean:scratch [--dry-run]: removes what old attempts left behind in the scratch folder. */
import { sweepScratch } from '../src/worker/scratch.ts'
import { EXIT_CONFIGURATION, readConfigOrExit } from './support/program.ts'

const unknown = process.argv.slice(2).filter((argument) => argument !== '--dry-run')
if (unknown.length > 0) {
  process.stderr.write(`bun run clean:scratch knows only --dry-run, not ${unknown.join(' ')}\n`)
  process.exit(EXIT_CONFIGURATION)
}
const isDryRun = process.argv.includes('--dry-run')
const say = (line: string): boolean => process.stdout.write(`${line}\n`)
const verb = isDryRun ? 'would remove' : 'removed'

const { dir, retentionHours } = readConfigOrExit().scratch
say(`${dir}: looking for scratch folders untouched for ${retentionHours} h`)
const { removed, bytes, failed } = await sweepScratch({
  root: dir,
  olderThanHours: retentionHours,
  isDryRun,
  onRemoved: (swept) => say(`${verb} ${swept.path} (${printSize(swept.bytes)})`),
})
for (const { path, error } of failed) process.stderr.write(`could not remove ${path}: ${String(error)}\n`)
say(
  `${verb} ${removed.length} scratch folders, ${printSize(bytes)}${failed.length > 0 ? `; ${failed.length} resisted` : ''}`,
)
process.exit(failed.length > 0 ? 1 : 0)

function printSize(bytes: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB']
  const power = Math.min(units.length - 1, bytes > 0 ? Math.floor(Math.log10(bytes) / 3) : 0)
  return `${(bytes / 1000 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`
}

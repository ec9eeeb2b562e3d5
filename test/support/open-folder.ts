/** A temporary folder that the embedded server's own account may enter too. */
import { chmodSync, mkdtempSync } from 'node:fs'
import { join } from 'node:path'

export function openFolder(name: string): string {
  const folder = mkdtempSync(join('/tmp', `leasehold-${name}-`))
  chmodSync(folder, 0o755)
  return folder
}

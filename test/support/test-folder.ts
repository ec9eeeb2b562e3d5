/** A folder for one test, gone at its end, and small disks to mount in it. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export interface TestFolder extends Disposable {
  path: string
  /** Writes a file inside, with its folders, and answers its path. */
  write(name: string, content: string | Uint8Array): string
}

export function testFolder(parent = '/tmp'): TestFolder {
  const path = mkdtempSync(join(parent, 'leasehold-files-'))
  return {
    path,
    write(name, content) {
      const file = join(path, name)
      mkdirSync(dirname(file), { recursive: true })
      writeFileSync(file, content)
      return file
    },
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  }
}

export interface Mount extends Disposable {
  isMounted: boolean
}

/** Mounts a tmpfs there, where that is allowed. */
export function mountTmpfs(path: string, options: string): Mount {
  const isMounted = spawnSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]).status === 0
  return { isMounted, [Symbol.dispose]: () => void (isMounted && spawnSync('umount', ['-l', path])) }
}

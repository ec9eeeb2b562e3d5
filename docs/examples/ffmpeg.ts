/** Where ffmpeg is: FFMPEG_PATH, then PATH, then the npm package that comes along on Linux x64. */
import { accessSync, constants, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, dirname, join } from 'node:path'

/** Null when there is none. */
export function findFfmpeg(env: Record<string, string | undefined> = process.env): string | null {
  if (env.FFMPEG_PATH) return env.FFMPEG_PATH
  const onPath = (env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  return onPath.map((folder) => join(folder, 'ffmpeg')).find(isProgram) ?? packaged()
}

function packaged(): string | null {
  try {
    const entry = createRequire(import.meta.url).resolve(`@ffmpeg-binary/${process.platform}-${process.arch}`)
    return join(dirname(entry), 'ffmpeg')
  } catch {
    return null
  }
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return statSync(path).isFile()
  } catch {
    return false
  }
}

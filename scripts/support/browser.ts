/** A real browser: CHROME_PATH, one on PATH, or the one that npm brings as @sparticuz/chromium, in this order. */
import { type Browser, chromium } from 'playwright-core'

const NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome']
/** As root there is no sandbox to be had; and a test browser has nobody to call. */
const QUIET = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync']
const OFFLINE = ['--disable-background-networking', '--disable-component-update']

export const BROWSER = await findBrowser()

async function findBrowser(): Promise<string | null> {
  const named = process.env.CHROME_PATH ?? NAMES.map((name) => Bun.which(name)).find((path) => path !== null)
  if (named) return named
  try {
    const packed = '@sparticuz/chromium'
    const { default: carried } = (await import(packed)) as { default: { executablePath(): Promise<string> } }
    return await carried.executablePath()
  } catch {
    return null
  }
}

export async function openBrowser(): Promise<Browser> {
  if (BROWSER === null) throw new Error('no browser on this machine: set CHROME_PATH')
  return chromium.launch({ executablePath: BROWSER, args: [...QUIET, ...OFFLINE] })
}

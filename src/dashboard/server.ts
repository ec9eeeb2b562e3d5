/** What an operator sees in a browser, with /metrics and health beside it, on one port. */
import { success } from '../result.ts'
import { answerTelemetry, listen, type Listening, type TelemetryOptions } from '../telemetry/server.ts'
import { type AccessOptions, createAccess } from './access.ts'
import { type ApiOptions, createApi } from './api.ts'
import { createPage, PAGE_HEADERS } from './page.ts'

export interface DashboardOptions extends TelemetryOptions, AccessOptions, Omit<ApiOptions, 'access'> {
  port: number
}

const MAX_BODY_BYTES = 16 * 1024
/** How often the plots get a new point. */
const SAMPLE_MS = 15_000

export function startDashboard(options: DashboardOptions): Listening {
  const access = createAccess(options)
  const api = createApi({ ...options, access })
  const page = createPage(options.log)
  const server = listen({
    ...options,
    maxBodyBytes: MAX_BODY_BYTES,
    async answer(request, url) {
      // A scraper comes by any name and needs no token; it gets numbers, and no way to change anything.
      const telemetry = await answerTelemetry(request, url, options)
      if (telemetry) return telemetry
      const host = access.checkHost(request)
      if (!host.ok) return new Response(`${host.error}\n`, { status: 421 })
      const answer = url.pathname.startsWith('/api/')
        ? await api.answer(request, url)
        : await page.answer(request, url.pathname)
      return sealed(answer ?? new Response('There is no such page. The dashboard begins at /.\n', { status: 404 }))
    },
  })
  if (!server.ok) return server
  const stopSampling = sampleNowAndThen(options)
  const { url, stop } = server.value
  return success({
    url,
    async stop() {
      stopSampling()
      await stop()
    },
  })
}

function sealed(response: Response): Response {
  for (const [name, value] of Object.entries(PAGE_HEADERS)) response.headers.set(name, value)
  return response
}

/** Never two at once, and never an error: a plot with a gap says enough. */
function sampleNowAndThen({ operator, log }: DashboardOptions): () => void {
  let timer: ReturnType<typeof setTimeout> | null = null
  let isOver = false
  const sample = async (): Promise<void> => {
    await operator
      .sampleHistory()
      .catch((error: unknown) => log.debug({ error: String(error) }, 'no sample for the plots'))
    if (!isOver) timer = setTimeout(() => void sample(), SAMPLE_MS)
  }
  void sample()
  return () => {
    isOver = true
    if (timer) clearTimeout(timer)
  }
}

/** The address bar as state: every screen and filter has an address of its own, so that a link shows a colleague the same. */
import { useEffect, useState } from 'preact/hooks'

export interface Address {
  path: string
  query: URLSearchParams
}

const CHANGED = 'leasehold:address'

export function useAddress(): Address {
  const [address, setAddress] = useState(read)
  useEffect(() => {
    window.history.scrollRestoration = 'manual'
    const onChange = (): void => setAddress(read())
    const onBack = (event: PopStateEvent): void => {
      setAddress(read())
      const { y = 0 } = (event.state ?? {}) as { y?: number }
      // Once what was there is there again.
      window.requestAnimationFrame(() => window.requestAnimationFrame(() => window.scrollTo(0, y)))
    }
    const onClick = (event: MouseEvent): void => {
      const href = ownLink(event)
      if (href === null) return
      event.preventDefault()
      go(href)
    }
    window.addEventListener('popstate', onBack)
    window.addEventListener(CHANGED, onChange)
    document.addEventListener('click', onClick)
    return () => {
      window.removeEventListener('popstate', onBack)
      window.removeEventListener(CHANGED, onChange)
      document.removeEventListener('click', onClick)
    }
  }, [])
  return address
}

export function go(href: string): void {
  window.history.replaceState({ y: window.scrollY }, '')
  window.history.pushState(null, '', href)
  window.dispatchEvent(new Event(CHANGED))
  window.scrollTo(0, 0)
}

function read(): Address {
  return { path: window.location.pathname, query: new URLSearchParams(window.location.search) }
}

/** A plain click on a link of ours; everything else is the browser's. */
function ownLink(event: MouseEvent): string | null {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return null
  const link = (event.target as Element | null)?.closest('a')
  if (!link || link.origin !== window.location.origin || link.target !== '') return null
  // Within the page (the skip link) the browser knows best.
  if (link.hash !== '' && link.pathname === window.location.pathname) return null
  return link.pathname + link.search
}

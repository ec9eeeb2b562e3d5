/** A window that must be answered: it takes the focus, gives it back, and closes with Escape. */
import type { ComponentChildren } from 'preact'
import { useEffect, useId, useRef } from 'preact/hooks'

import { plain } from './show.tsx'

interface Props {
  title: string
  onClose: () => void
  children: ComponentChildren
}

export function Dialog({ title, onClose, children }: Props): preact.JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null)
  const titleId = useId()
  useEffect(() => {
    const before = document.activeElement
    dialog.current?.showModal()
    return () => {
      // What it was opened from may be gone by then.
      const next = before instanceof HTMLElement && before.isConnected && before !== document.body ? before : null
      ;(next ?? document.querySelector<HTMLElement>('h1'))?.focus()
    }
  }, [])
  return (
    <dialog ref={dialog} aria-labelledby={titleId} onClose={onClose}>
      <h2 id={titleId}>{plain(title)}</h2>
      {children}
    </dialog>
  )
}

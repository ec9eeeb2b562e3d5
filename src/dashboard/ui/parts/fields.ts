/** What stands in a form's fields, without blanks at either end. Reads the form that an event belongs to. */
export function fieldsOf(event: Event): Record<string, string> {
  const form = (event.currentTarget as HTMLElement).closest('form')
  if (!form) return {}
  const texts = [...new FormData(form)].map(([name, value]) => [name, typeof value === 'string' ? value.trim() : ''])
  return Object.fromEntries(texts) as Record<string, string>
}

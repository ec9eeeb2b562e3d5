/** What stands against a table, in words for the person who has to mend it. */

export interface Finding {
  /** With an error the table is not touched; a warning says what can go wrong; a note is only good to know. */
  level: 'error' | 'warning' | 'note'
  /** The table it is about; null for the server or the settings. */
  table: string | null
  /** Where in the profile, the table or the settings, e.g. `columns.holder`. */
  place: string
  what: string
  /** What comes of it when nothing is done. */
  follows: string
  /** SQL to run, or a setting to change; null where neither would help. */
  mend: string | null
}

/** One line for a log or an error. */
export function inOneLine({ what, mend }: Finding): string {
  return mend === null ? what : `${what}: ${mend}`
}

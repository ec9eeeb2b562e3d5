/** Text of a row inside a command that is printed to be pasted. */

/** Control characters (ANSI among them), what turns the text around and what cannot be seen. */
export const UNSEEN = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u061C\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\uFEFF]/gu

/** As a shell reads it back, and harmless on the way there. */
export function shellWord(text: string): string {
  if (text.search(UNSEEN) !== -1) {
    const escaped = text.replaceAll(/[\\']/g, String.raw`\$&`).replaceAll(UNSEEN, escapeOf)
    return `$'${escaped}'`
  }
  return /^[\w./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

function escapeOf(letter: string): string {
  return `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`
}

/** Tells what happens: a line with its time for everything worth telling, and on a terminal one live line below them. */
export type Mark = 'note' | 'bad' | 'frozen' | 'back' | 'again' | 'good' | 'score'

export interface Story {
  say(mark: Mark, text: string): void
  /** What is going on right now. On a terminal it is redrawn in place, elsewhere it is printed now and then. */
  show(now: string): void
  /** Lines without a time: the opening and the score. */
  print(text: string): void
  /** Gives the terminal back as it was. */
  end(): void
}

export interface StoryOptions {
  write: (text: string) => void
  isTerminal: boolean
  hasColour: boolean
  width: () => number
  /** Names that are painted wherever they are told. */
  names: readonly string[]
}

const MARKS: Record<Mark, { sign: string; colour: number }> = {
  note: { sign: '·', colour: 2 },
  bad: { sign: '✗', colour: 31 },
  frozen: { sign: '❄', colour: 36 },
  back: { sign: '↻', colour: 33 },
  again: { sign: '▶', colour: 34 },
  good: { sign: '✓', colour: 32 },
  score: { sign: '■', colour: 1 },
}
const NAME_COLOURS = [35, 36, 33]
const CLEAR_LINE = '\r\u001B[2K'
const [HIDE_CURSOR, SHOW_CURSOR] = ['\u001B[?25l', '\u001B[?25h']
/** As wide as what stands before the text of a line. */
const INDENT = ' '.repeat(12)
/** Without a terminal: how long nothing may be heard. */
const SILENCE_MS = 5000

export function createStory(options: StoryOptions): Story {
  const { write, isTerminal, names } = options
  const startedAt = performance.now()
  let live = ''
  let spokeAt = startedAt
  if (isTerminal) write(HIDE_CURSOR)

  const paint = (text: string, colour: number): string =>
    options.hasColour ? `\u001B[${colour}m${text}\u001B[0m` : text
  const paintNames = (text: string): string =>
    names.reduce(
      (painted, name, at) =>
        painted.replaceAll(new RegExp(`\\b${name}\\b`, 'g'), paint(name, NAME_COLOURS[at % NAME_COLOURS.length] ?? 1)),
      text,
    )
  const clock = (): string => `${((performance.now() - startedAt) / 1000).toFixed(1).padStart(6)} s`

  function line(text: string): void {
    spokeAt = performance.now()
    write(isTerminal ? `${CLEAR_LINE}${text}\n${live}` : `${text}\n`)
  }

  return {
    say(mark, text) {
      const { sign, colour } = MARKS[mark]
      const lines = isTerminal ? wrap(text, options.width() - INDENT.length - 1) : [text]
      const told = lines.map((each) => (mark === 'bad' ? paint(each, 1) : paintNames(each))).join(`\n${INDENT}`)
      line(`${paint(clock(), 2)}  ${paint(sign, colour)} ${told}`)
    },
    show(now) {
      if (!isTerminal) {
        if (performance.now() - spokeAt > SILENCE_MS) line(`${clock()}    ${now}`)
        return
      }
      const plain = `${clock()}    ${now}`.slice(0, Math.max(20, options.width() - 1))
      live = paintNames(plain)
      write(`${CLEAR_LINE}${live}`)
    },
    print: line,
    end() {
      live = ''
      if (isTerminal) write(`${CLEAR_LINE}${SHOW_CURSOR}`)
    },
  }
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = []
  for (const word of text.split(' ')) {
    const last = lines.at(-1)
    if (last !== undefined && last.length + 1 + word.length <= width) lines[lines.length - 1] = `${last} ${word}`
    else lines.push(word)
  }
  return lines
}

/** 120 → `0.12 s`, 2840 → `2.8 s`. */
export function inSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(ms < 1000 ? 2 : 1)} s`
}

/** `clip 3`, `clips 3 and 5`, `clips 3, 5 and 8`. */
export function clips(numbers: readonly number[]): string {
  return `clip${numbers.length === 1 ? '' : 's'} ${listed(numbers.map(String))}`
}

export function listed(words: readonly string[]): string {
  const last = words.at(-1) ?? 'none'
  return words.length < 2 ? last : `${words.slice(0, -1).join(', ')} and ${last}`
}

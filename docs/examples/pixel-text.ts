/** Text as a picture without any font on the machine: five by seven dots a letter, as a PGM image that ffmpeg reads. */

/** A letter, then its seven rows from the top: one base-32 digit is five dots. */
const LETTERS = new Map(
  [
    'Aehhvhhh|Buhhuhhu|Cehggghe|Duhhhhhu|Evgguggv|Fvgguggg|Gehgnhhf|Hhhhvhhh|Ie44444e|J72222ic',
    'Khikokih|Lggggggv|Mhrllhhh|Nhplljhh|Oehhhhhe|Puhhuggg|Qehhhlid|Ruhhukih|Sfgge11u|Tv444444',
    'Uhhhhhhe|Vhhhhha4|Whhhllrh|Xhha4ahh|Yhha4444|Zv1248gv|0ehjlphe|14c4444e|2eh168gv|3v2421he',
    '426aiv22|5vgu11he|668guhhe|7v124888|8ehhehhe|9ehhf12c| 0000000|.0000066|,0000648|:0660660',
    "!4444404|?eh12404|-000v000|'4480000",
  ]
    .flatMap((line) => line.split('|'))
    .map((entry) => [entry.charAt(0), Array.from(entry.slice(1), (digit) => Number.parseInt(digit, 32))] as const),
)
const UNKNOWN = [31, 17, 17, 17, 17, 17, 31]
const COLUMNS = 6
const ROWS = 7
const INK = 255

/** White on black, with a margin of one dot. */
export function drawPixelText(text: string): Buffer {
  const letters = Array.from(text.toUpperCase(), (letter) => LETTERS.get(letter) ?? UNKNOWN)
  const [width, height] = [letters.length * COLUMNS + 1, ROWS + 2]
  const dots = Buffer.alloc(width * height)
  for (const [at, rows] of letters.entries()) {
    for (const [row, bits] of rows.entries()) {
      for (let column = 0; column < COLUMNS - 1; column += 1) {
        const isInk = (bits >> (COLUMNS - 2 - column)) & 1
        if (isInk) dots[(row + 1) * width + at * COLUMNS + column + 1] = INK
      }
    }
  }
  return Buffer.concat([Buffer.from(`P5 ${width} ${height} ${INK}\n`), dots])
}

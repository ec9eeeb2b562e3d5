/** Finds where somebody speaks: runs of loud windows in what ffmpeg measures. A stand-in for a speech recogniser. */

export interface Segment {
  /** Seconds from the beginning. */
  start: number
  end: number
  /** Mean level in dB below full scale. */
  loudness: number
}

export interface SpeechFinder {
  /** Goes to ffmpeg as its audio filter. */
  filter: string
  /** Gets the lines that ffmpeg prints. */
  hear: (line: string) => void
  segments: () => Segment[]
}

const WINDOW_SEC = 0.1
const SILENCE_DB = -40
/** A shorter pause belongs to the sentence. */
const PAUSE_SEC = 0.3

export function createSpeechFinder(): SpeechFinder {
  const found: { startSec: number; endSec: number; energy: number; windows: number }[] = []
  let atSec = 0
  return {
    filter: [
      'aresample=16000',
      `asetnsamples=n=${16_000 * WINDOW_SEC}:p=0`,
      'astats=metadata=1:reset=1',
      // Standard output belongs to the progress report; two writers would break each other's lines.
      "ametadata=print:key=lavfi.astats.Overall.RMS_level:file='pipe\\:2'",
    ].join(','),
    hear(line) {
      const time = /^frame:.* pts_time:([\d.]+)/.exec(line)?.[1]
      if (time !== undefined) atSec = Number(time)
      const level = Number(/^lavfi\.astats\.Overall\.RMS_level=(-?[\d.]+)$/.exec(line)?.[1] ?? Number.NaN)
      // Full silence is "-inf", which is no number and not louder than anything.
      if (!(level > SILENCE_DB)) return
      const last = found.at(-1)
      const energy = 10 ** (level / 10)
      if (last && atSec - last.endSec < PAUSE_SEC) {
        last.endSec = atSec + WINDOW_SEC
        last.energy += energy
        last.windows += 1
      } else {
        found.push({ startSec: atSec, endSec: atSec + WINDOW_SEC, energy, windows: 1 })
      }
    },
    segments: () =>
      found.map(({ startSec, endSec, energy, windows }) => ({
        start: round(startSec),
        end: round(endSec),
        loudness: round(10 * Math.log10(energy / windows)),
      })),
  }
}

function round(value: number): number {
  return Math.round(value * 100) / 100
}

/** 75 → `1 min 15 s`: the two largest units. */
export function duration(sec: number): string {
  const units: [string, number][] = [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ]
  let rest = Math.max(0, Math.round(sec))
  const parts = units.map(([unit, size]): [number, string] => {
    const count = Math.floor(rest / size)
    rest -= count * size
    return [count, unit]
  })
  const first = parts.findIndex(([count]) => count > 0)
  if (first === -1) return '0 s'
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ')
}

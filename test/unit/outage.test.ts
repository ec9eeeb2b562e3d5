/** Who gets a grace after the database was away: told by contact lost, or by having slept much longer than planned. */
import { expect, test } from 'bun:test'

import { createOutageWatch } from '../../src/reaper/outage.ts'

test('steady contact gives no grace', () => {
  const watch = createOutageWatch(10)
  expect(watch.answered(1000)).toBe(false)
  watch.sleeping(60)
  expect(watch.answered(1060)).toBe(false)
  expect(watch.grace()).toEqual({ graceSec: 20, contactBackAt: null })
})

test('contact lost for longer than a heartbeat gives a grace from the return on', () => {
  const watch = createOutageWatch(10)
  watch.answered(1000)
  watch.lost()
  expect(watch.answered(1045)).toBe(true)
  expect(watch.grace()).toEqual({ graceSec: 20, contactBackAt: 1045 })
})

test('a blip shorter than a heartbeat gives none', () => {
  const watch = createOutageWatch(10)
  watch.answered(1000)
  watch.lost()
  expect(watch.answered(1004)).toBe(false)
})

test('a database that is away at the start counts as an outage', () => {
  const watch = createOutageWatch(10)
  watch.lost()
  expect(watch.answered(1000)).toBe(true)
})

test('Z5: having slept much longer than planned means that the machine stood still', () => {
  const watch = createOutageWatch(10)
  watch.answered(1000)
  watch.sleeping(5)
  expect(watch.answered(1040)).toBe(true)
})

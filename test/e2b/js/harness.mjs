// What cases share: the SDK under test, assertions, refusals and the list of cases.
import assert from 'node:assert/strict'
import { mute, note } from './record.mjs'

export { assert }
export const cases = []
// Each case runs by itself; one that fails does not stop the others. `only` says for which SDKs the case is meant.
export const test = (name, fn, only = () => true) => cases.push({ name, fn, only })

export const sleep = (ms) => new Promise((r) => setTimeout(r, ms))
export const env = process.env
export const tag = `${env.CONF_RUN}-${Math.floor(Date.now() / 1000)}-${process.pid}`
export const refusals = []

// throws asserts that fn fails with the given error class and a message that says why.
export async function throws(cls, pattern, fn) {
  let got
  try { got = await fn() } catch (e) {
    if (cls && !(e instanceof cls)) assert.fail(`want ${cls.name}, got ${e?.constructor?.name}: ${e?.message}`)
    if (pattern) assert.match(String(e.message), pattern)
    return e
  }
  assert.fail(`want ${cls?.name}, got the result ${JSON.stringify(got)?.slice(0, 300)}`)
}

// refused asserts that the platform refuses, and that it says why: the documented reason.
export async function refused(ids, reason, pattern, fn, cls) {
  const e = await mute(() => throws(cls, pattern, fn))
  for (const id of [ids].flat()) refusals.push({ call: id, reason })
  return e
}
// limited says of calls that work for what they do not do here; the case has shown it.
export function limited(ids, reason) {
  for (const id of ids) refusals.push({ call: id, reason })
}
export async function eventually(what, fn, ms = 10_000) {
  const end = Date.now() + ms
  for (;;) {
    const v = await fn()
    if (v) return v
    if (Date.now() > end) assert.fail(`${what}: not within ${ms} ms`)
    await sleep(50)
  }
}
export async function text(stream) {
  let s = ''
  const d = new TextDecoder()
  for await (const c of stream) s += d.decode(c, { stream: true })
  return s
}
export { mute, note }

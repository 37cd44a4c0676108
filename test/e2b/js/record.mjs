// Notes which public calls a case makes, with which options, without changing what they do.
export const calls = new Set()
let muted = 0

// mute runs fn without noting what it calls: refused calls are declared by hand.
export async function mute(fn) {
  muted++
  try { return await fn() } finally { muted-- }
}

const wrapped = Symbol('recorded')
const shared = { apiHeaders: 1, apiKey: 1, accessToken: 1, domain: 1, headers: 1, logger: 1, proxy: 1, requestTimeoutMs: 1, retries: 1, signal: 1, validateApiKey: 1 }
const plain = (v) => v && typeof v === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(v))

export function note(id, args = []) {
  if (muted) return
  calls.add(id)
  for (const a of args) {
    if (!plain(a)) continue
    for (const [k, v] of Object.entries(a)) {
      if (v === undefined) continue
      calls.add(`${id}:${k}`)
      if (k in shared) calls.add(`ConnectionOpts:${k}`)
      if (id.startsWith('Git.')) calls.add(`GitRequestOpts:${k}`)
      if (id.startsWith('Volume.')) calls.add(`VolumeApiOpts:${k}`)
      if (plain(v)) for (const n of Object.keys(v)) calls.add(`${id}:${k}.${n}`)
    }
  }
}

export function fn(id, f) {
  f = f[wrapped] ?? f // what a class inherits may be wrapped under its ancestor's name
  const w = function (...args) {
    note(id, args)
    return f.apply(this, args)
  }
  w[wrapped] = f
  return w
}

// patch notes the calls of all functions and getters that o and its ancestors have, under the name of their class.
export function patch(name, o, stop = [Object.prototype, Function.prototype]) {
  for (let p = o; p && !stop.includes(p); p = Object.getPrototypeOf(p)) {
    for (const [k, d] of Object.entries(Object.getOwnPropertyDescriptors(p))) {
      if (['constructor', 'prototype', 'length', 'name'].includes(k) || !d.configurable) continue
      const id = `${name}.${k}`
      if (typeof d.value === 'function' && !/^class\b/.test(Function.prototype.toString.call(d.value))) {
        // An inherited function is noted under the class it was reached by.
        if (!Object.hasOwn(o, k) || !o[k][wrapped]) Object.defineProperty(o, k, { ...d, value: fn(id, d.value) })
      } else if (d.get && !(Object.hasOwn(o, k) && d.get[wrapped])) {
        Object.defineProperty(o, k, { ...d, get: fn(id, d.get) })
      }
    }
  }
}

// Runs the cases against one version of the JavaScript SDKs. Prints a line of JSON for each case.
// Environment: CONF_SDK (directory with node_modules), CONF_RUN (name), CONF_WILDCARD (domain whose names mean this machine),
// E2B_* as a user sets them; arguments: substrings of the names of the cases to run.
import dns from 'node:dns'
import { createRequire } from 'node:module'
import { calls, fn, note, patch } from './record.mjs'
import { cases, env, refusals, sleep, tag } from './harness.mjs'

// The wildcard record that a deployment has in DNS.
const lookup = dns.lookup
dns.lookup = (host, opts, cb) => (host.endsWith('.' + env.CONF_WILDCARD) ? lookup('127.0.0.1', opts, cb) : lookup(host, opts, cb))

const require = createRequire(env.CONF_SDK + '/')
const version = require('./node_modules/e2b/package.json').version
// The year-old package's ES module cannot build templates: it requires a module by a way that ES modules lack.
const old = Number(version.split('.')[1]) < 9
const load = async (p) => (old ? require(p) : import(`${env.CONF_SDK}/node_modules/${p}/dist/index.mjs`))
const sdk = { ...(await load('e2b')) }
const ci = { ...(await load('@e2b/code-interpreter')) }
const [major, minor] = version.split('.').map(Number)

const paginators = { SandboxPaginator: () => sdk.Sandbox.list(), SnapshotPaginator: () => sdk.Sandbox.listSnapshots(), SecretPaginator: () => sdk.Secret.list() }
for (const [name, make] of Object.entries(paginators)) try { patch(name, Object.getPrototypeOf(make())) } catch { /* not in this version */ }
for (const name of ['Sandbox', 'Volume', 'Secret']) {
  if (!sdk[name]) continue
  patch(name, sdk[name])
  patch(name, sdk[name].prototype)
}
patch('Sandbox', ci.Sandbox)
patch('Sandbox', ci.Sandbox.prototype)
patch('Template', sdk.TemplateBase)
patch('Template', sdk.TemplateBase.prototype)
for (const k of Object.getOwnPropertyNames(sdk.Template)) if (typeof sdk.Template[k] === 'function' && k !== 'prototype') try { sdk.Template[k] = fn(`Template.${k}`, sdk.Template[k]) } catch { /* the statics of TemplateBase */ }
const build = sdk.Template
sdk.Template = new Proxy(build, { apply: (t, self, args) => { note('Template', args); note('E2B.Template', args); return Reflect.apply(t, self, args) } })
if (sdk.E2B) sdk.E2B = new Proxy(sdk.E2B, { construct: (t, args) => { note('E2B'); return new t(...args) } })
for (const f of ['waitForPort', 'waitForURL', 'waitForFile', 'waitForProcess', 'waitForTimeout', 'getSignature', 'defaultBuildLogger']) sdk[f] = fn(f, sdk[f])
for (const c of ['ReadyCmd', 'LogEntry', 'LogEntryStart', 'LogEntryEnd']) patch(c, sdk[c].prototype)

for (const f of ['sandbox', 'commands', 'files', 'pty', 'git', 'template', 'refusals', 'interpreter']) await import(`./${f}.mjs`)

const k = {
  sdk, ci, version, patch, at: (v) => { const [a, b] = v.split('.').map(Number); return major > a || (major === a && minor >= b) },
  template: env.CONF_TEMPLATE,
  async create(opts = {}) {
    const s = await sdk.Sandbox.create(k.template, { timeoutMs: 120_000, ...opts, metadata: { run: tag, ...opts.metadata } })
    k.made.push(s.sandboxId)
    return s
  },
  made: [],
}
const wanted = process.argv.slice(2)
const chosen = cases.filter((c) => c.only(k) && (!wanted.length || wanted.some((w) => c.name.includes(w))))
k.sbx = await k.create({ timeoutMs: 1_200_000 })
for (const [name, o] of Object.entries({ Commands: k.sbx.commands, Filesystem: k.sbx.files, Pty: k.sbx.pty, Git: k.sbx.git })) if (o) patch(name, Object.getPrototypeOf(o))
const probe = await k.sbx.commands.run('sleep 60', { background: true })
patch('CommandHandle', Object.getPrototypeOf(probe))
await probe.kill()
const watch = await k.sbx.files.watchDir('/tmp', () => {})
patch('WatchHandle', Object.getPrototypeOf(watch))
await watch.stop()

let failed = 0
for (const c of chosen) {
  calls.clear()
  refusals.length = 0
  const begun = Date.now()
  const out = { case: c.name }
  const alarm = sleep(Number(env.CONF_CASE_MS ?? 150_000)).then(() => { throw new Error('the case did not end in time') })
  try {
    await Promise.race([c.fn(k), alarm])
    out.outcome = 'pass'
  } catch (e) {
    failed++
    out.outcome = 'FAIL'
    out.detail = `${e?.name}: ${e?.message}\n${e?.stack}`.slice(0, 2500)
  }
  console.log(JSON.stringify({ ...out, calls: [...calls], refused: refusals, ms: Date.now() - begun }))
}
for (const id of k.made) await sdk.Sandbox.kill(id).catch(() => {})
process.exit(failed ? 1 : 0)

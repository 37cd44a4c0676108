// What this platform does not have is refused, with the reason; nothing is accepted and ignored.
import { assert, env, mute, refused, test } from './harness.mjs'

test('refusals/snapshots', async (k) => {
  const s = await k.create()
  const why = 'no snapshots yet'
  await refused(['Sandbox.createSnapshot', 'Sandbox.createSnapshot:name'], why, /snapshot/i, () => s.createSnapshot({ name: 'x' }), k.sdk.SandboxError)
  await refused('Sandbox.createSnapshot', why, /snapshot/i, () => k.sdk.Sandbox.createSnapshot(s.sandboxId), k.sdk.SandboxError)
  const pages = await mute(() => k.sdk.Sandbox.listSnapshots({ limit: 10, name: 'x', nextToken: 'x', sandboxId: s.sandboxId }))
  await mute(() => assert.deepEqual([pages.hasNext, pages.nextToken], [true, 'x']))
  await refused(['Sandbox.listSnapshots', 'Sandbox.listSnapshots:limit', 'Sandbox.listSnapshots:name', 'Sandbox.listSnapshots:nextToken', 'Sandbox.listSnapshots:sandboxId', 'SnapshotPaginator.nextItems', 'SnapshotPaginator.hasNext', 'SnapshotPaginator.nextToken'],
    why, /snapshot/i, () => pages.nextItems(), k.sdk.SandboxError)
  await refused(['Sandbox.pause:keepMemory', 'Sandbox.betaPause:keepMemory'], 'keepMemory: false would need snapshots', /./, () => s.pause({ keepMemory: false }), k.sdk.SandboxError)
  await refused(['Sandbox.connect:onResume'], "onResume: 'reboot' would need snapshots", /./, () => s.connect({ onResume: 'reboot' }), k.sdk.SandboxError)
  assert.equal(await k.sdk.Sandbox.deleteSnapshot('no-such-snapshot'), false)
  const forks = await refused(['Sandbox.fork', 'Sandbox.fork:count', 'Sandbox.fork:timeoutMs'], 'no forks yet', /fork/i, async () => {
    const got = await s.fork({ count: 2, timeoutMs: 60_000 })
    const errors = got.filter((x) => x instanceof Error)
    if (errors.length === got.length) throw errors[0]
    return got
  }, k.sdk.SandboxError)
  assert.ok(forks)
  assert.equal(await s.isRunning(), true, 'a refused fork leaves the sandbox as it was')
  await s.kill()
}, (k) => k.at('2.51'))

test('refusals/network', async (k) => {
  const none = /network|egress|internet|proxy|mask|https|rule/i
  const refuse = (id, reason, network) => refused(`Sandbox.create:network.${id}`, reason, none, async () => {
    const s = await k.sdk.Sandbox.create(k.template, { network, timeoutMs: 30_000 })
    await s.kill()
  }, k.sdk.SandboxError)
  await refuse('maskRequestHost', 'the Host header reaches the server unchanged', { maskRequestHost: 'localhost:${PORT}' })
  if (!k.at('2.51')) return
  await refuse('egressProxy', 'no proxy for egress', { egressProxy: { address: 'proxy.example.com:1080' } })
  await refuse('rules', 'no changes to requests on their way', { allowOut: ['api.example.com'], rules: { 'api.example.com': [{ transform: { headers: { A: 'b' } } }] } })
  await refuse('httpsPorts', 'servers in the box speak plain HTTP', { httpsPorts: [3000] })
  for (const [id, update] of Object.entries({ egressProxy: { egressProxy: { address: 'proxy.example.com:1080' } }, rules: { rules: { 'a.example.com': [{ transform: { headers: { A: 'b' } } }] } } })) {
    await refused(`Sandbox.updateNetwork:${id}`, 'as at creation', none, () => k.sbx.updateNetwork(update), k.sdk.SandboxError)
  }
})

test('refusals/mcp, identity and volumes', async (k) => {
  const create = (opts) => async () => (await k.sdk.Sandbox.create(k.template, { timeoutMs: 30_000, ...opts })).kill()
  await refused(['Sandbox.create:mcp', 'Sandbox.betaCreate:mcp'], 'no MCP gateway', /mcp/i, create({ mcp: { exa: { apiKey: 'x' } } }), k.sdk.SandboxError)
  assert.match(k.sbx.getMcpUrl(), /\/mcp$/)
  await refused('Sandbox.getMcpToken', 'no MCP gateway', /./, () => k.sbx.getMcpToken(), k.sdk.SandboxError)
  if (!k.at('2.51')) return
  await refused('Sandbox.create:iam', 'no workload identities', /iam|identit/i, create({ iam: { tokens: { aws: k.sdk.Secret.iamToken({ audience: 'sts.amazonaws.com', tokenType: 'JWT-SVID' }) } } }), k.sdk.SandboxError)
  await refused('Sandbox.create:volumeMounts', 'no volumes', /volume/i, create({ volumeMounts: { '/data': 'v' } }), k.sdk.SandboxError)
})

test('refusals/volumes', async (k) => {
  const { Volume } = k.sdk
  const no = (id, fn) => refused(id, 'no volumes', /volume/i, fn)
  await no('Volume.create', () => Volume.create('v'))
  await no('Volume.connect', () => Volume.connect('v'))
  await no('Volume.list', () => Volume.list())
  await no('Volume.getInfo', () => Volume.getInfo('v'))
  await no('Volume.destroy', () => Volume.destroy('v'))
  const api = { apiUrl: env.E2B_API_URL, token: 'x', domain: env.E2B_DOMAIN, requestTimeoutMs: 5_000, headers: {}, logger: undefined, debug: false }
  const v = new Volume('v', 'v', 't', env.E2B_DOMAIN)
  const fields = (m, extra = []) => [m, ...extra.map((f) => `${m}:${f}`), ...['apiUrl', 'debug', 'domain', 'headers', 'logger', 'proxy', 'requestTimeoutMs', 'signal', 'token'].map((f) => `VolumeApiOpts:${f}`)]
  const meta = ['uid', 'gid', 'mode']
  await no(fields('Volume.list', ['depth']), () => v.list('/', { ...api, depth: 1 }))
  await no(fields('Volume.makeDir', [...meta, 'force']), () => v.makeDir('/d', { ...api, uid: 0, gid: 0, mode: 0o755, force: true }))
  await no(fields('Volume.getInfo'), () => v.getInfo('/d', api))
  await no(fields('Volume.exists'), async () => { if (!(await v.exists('/d', api))) throw new Error('no volume: false') })
  await no(fields('Volume.updateMetadata', meta), () => v.updateMetadata('/d', { uid: 0, gid: 0, mode: 0o755 }, api))
  await no(fields('Volume.readFile', ['format', 'streamIdleTimeoutMs']), () => v.readFile('/d', { ...api, format: 'text', streamIdleTimeoutMs: 1000 }))
  await no(fields('Volume.writeFile', [...meta, 'force']), () => v.writeFile('/d', 'x', { ...api, uid: 0, gid: 0, mode: 0o644, force: true }))
  await no(fields('Volume.remove'), () => v.remove('/d', api))
}, (k) => k.at('2.51'))

test('refusals/secrets', async (k) => {
  const { Secret } = k.sdk
  const no = (id, fn) => refused(id, 'no secrets', /secret/i, fn)
  await no(['Secret.create', 'Secret.create:metadata'], () => Secret.create('s', 'v', { metadata: { a: 'b' } }))
  await no(['Secret.update', 'Secret.update:metadata'], () => Secret.update('s', { value: 'v', metadata: {} }))
  await no('Secret.getInfo', () => Secret.getInfo('s'))
  await no('Secret.exists', () => Secret.exists('s'))
  await no('Secret.destroy', () => Secret.destroy('s'))
  const pages = await mute(() => Secret.list({ limit: 1, nextToken: 'x' }))
  await mute(() => assert.deepEqual([pages.hasNext, pages.nextToken], [true, 'x']))
  await no(['Secret.list', 'Secret.list:limit', 'Secret.list:nextToken', 'SecretPaginator.nextItems', 'SecretPaginator.hasNext', 'SecretPaginator.nextToken'], () => pages.nextItems())
  assert.match(Secret.fill('s'), /s/)
  assert.deepEqual(Secret.iamToken({ audience: 'a', tokenType: 'JWT-SVID' }), { audience: 'a', tokenType: 'JWT-SVID' })
}, (k) => k.at('2.51'))

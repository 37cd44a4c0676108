import https from 'node:https'
import { assert, env, eventually, refused, sleep, tag, test, throws } from './harness.mjs'

const nobody = '01jzzzzzzzzzzzzzzzzzzzzzzz'
const notFound = (k) => k.sdk.SandboxNotFoundError ?? k.sdk.NotFoundError

test('sandbox/create with options', async (k) => {
  const s = await k.create({ timeoutMs: 90_000, metadata: { purpose: 'a b&c=d' }, envs: { GREETING: 'hello', N: '1' }, allowInternetAccess: false, secure: true })
  assert.match(s.sandboxId, /^[a-z0-9]+$/)
  const out = await s.commands.run('echo $GREETING $N; whoami; pwd')
  assert.equal(out.stdout, 'hello 1\nuser\n/home/user\n')
  assert.equal((await s.commands.run('echo $GREETING', { envs: { GREETING: 'bye' } })).stdout, 'bye\n')
  const info = await s.getInfo()
  assert.equal(info.sandboxId, s.sandboxId)
  assert.equal(info.metadata.purpose, 'a b&c=d')
  assert.equal(info.metadata.run, tag)
  assert.ok(info.templateId)
  assert.ok(info.startedAt instanceof Date && Math.abs(info.startedAt - Date.now()) < 60_000, `startedAt ${info.startedAt}`)
  const left = info.endAt - Date.now()
  assert.ok(left > 30_000 && left <= 92_000, `endAt in ${left} ms`)
  const full = await k.sdk.Sandbox.getFullInfo(s.sandboxId)
  assert.equal(full.state, 'running')
  assert.ok(full.cpuCount >= 1 && full.memoryMB >= 1, JSON.stringify(full))
  assert.match(full.envdVersion, /^\d+\.\d+\.\d+/)
  assert.ok(s.sandboxDomain, 'sandboxDomain')
  assert.ok(s.trafficAccessToken, 'trafficAccessToken')
  // The year-old SDK keeps the answer to itself.
  assert.equal(await s.kill(), k.at('2.51') ? true : undefined)
  assert.equal(await k.sdk.Sandbox.kill(s.sandboxId), false)
})

test('sandbox/create from the default template', async (k) => {
  const s = await k.sdk.Sandbox.create({ timeoutMs: 60_000, sandboxUrl: env.E2B_SANDBOX_URL, template: undefined })
  assert.equal((await s.commands.run('echo ok')).stdout, 'ok\n')
  assert.equal(await k.sdk.Sandbox.kill(s.sandboxId), true)
})

test('sandbox/create names its template in the options', async (k) => {
  const s = await k.sdk.Sandbox.create({ template: k.template, timeoutMs: 60_000 })
  assert.ok((await s.getInfo()).name === undefined || (await s.getInfo()).name)
  await s.kill()
}, (k) => k.at('2.51'))

test('sandbox/create of an unknown template', async (k) => {
  const e = await throws(k.sdk.SandboxError, /404.*no-such-template/, () => k.sdk.Sandbox.create('no-such-template'))
  assert.ok(!/undefined/.test(e.message), e.message)
})

test('sandbox/create with a key that is none', async (k) => {
  await throws(k.sdk.AuthenticationError, /./, () => k.sdk.Sandbox.create(k.template, { apiKey: 'e2b_' + '0'.repeat(40) }))
  const saved = process.env.E2B_API_KEY
  delete process.env.E2B_API_KEY
  try { await throws(k.sdk.AuthenticationError, /API key/, () => k.sdk.Sandbox.create(k.template)) } finally { process.env.E2B_API_KEY = saved }
})

test('sandbox/isRunning and kill', async (k) => {
  const s = await k.create()
  assert.equal(await s.isRunning(), true)
  assert.equal(await k.sdk.Sandbox.kill(s.sandboxId), true)
  assert.equal(await s.isRunning(), false)
  assert.equal(await k.sdk.Sandbox.kill(nobody), false)
  await throws(undefined, /./, () => k.sdk.Sandbox.connect(s.sandboxId))
  const e = await throws(Error, /./, () => s.commands.run('true'))
  assert.ok(e instanceof k.sdk.TimeoutError || e instanceof k.sdk.NotFoundError, `${e.constructor.name}: ${e.message}`)
})

test('sandbox/getInfo of nobody', async (k) => { await throws(notFound(k), /not found/i, () => k.sdk.Sandbox.getInfo(nobody)) }, (k) => k.at('2.51'))

test('sandbox/setTimeout', async (k) => {
  const s = await k.create({ timeoutMs: 60_000 })
  await s.setTimeout(300_000)
  let left = (await s.getInfo()).endAt - Date.now()
  assert.ok(left > 240_000 && left <= 302_000, `after raising it: ${left}`)
  await k.sdk.Sandbox.setTimeout(s.sandboxId, 1_000)
  await eventually('the sandbox ends by its time-out', async () => !(await s.isRunning()), 20_000)
  const e = await throws(Error, /./, () => s.setTimeout(10_000))
  assert.ok(e instanceof k.sdk.SandboxError, e.constructor.name)
})

test('sandbox/connect', async (k) => {
  const s = await k.create({ timeoutMs: 60_000, envs: { WHO: 'first' } })
  await s.files.write('/tmp/mark', 'x')
  const opts = { timeoutMs: 200_000 }
  if (!k.at('2.51')) Object.assign(opts, { metadata: {}, envs: {}, secure: true, allowInternetAccess: true, autoPause: false, mcp: {}, network: {}, sandboxUrl: env.E2B_SANDBOX_URL })
  const other = await k.sdk.Sandbox.connect(s.sandboxId, opts)
  assert.equal(other.sandboxId, s.sandboxId)
  assert.equal(await other.files.read('/tmp/mark'), 'x')
  assert.equal((await other.commands.run('echo $WHO')).stdout, 'first\n')
  const left = (await other.getInfo()).endAt - Date.now()
  assert.ok(left > 150_000, `connect raises the time-out: ${left}`)
  await other.connect({ timeoutMs: 10_000 })
  assert.ok((await other.getInfo()).endAt - Date.now() > 100_000, 'connect never shortens the time-out of a running sandbox')
  await s.kill()
  await throws(Error, /not found|404/i, () => k.sdk.Sandbox.connect(nobody))
})

test('sandbox/pause and resume', async (k) => {
  const s = await k.create()
  const job = await s.commands.run('i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done', { background: true, timeoutMs: 0 })
  await eventually('it counts', () => s.files.exists('/tmp/count'))
  assert.equal(await s.betaPause(), true)
  assert.equal(await k.sdk.Sandbox.betaPause(s.sandboxId), false, 'it was paused already')
  const info = await k.sdk.Sandbox.getInfo(s.sandboxId)
  assert.equal((await k.sdk.Sandbox.getFullInfo(s.sandboxId)).state, 'paused')
  assert.equal(info.sandboxId, s.sandboxId)
  const page = await k.sdk.Sandbox.list({ query: { metadata: { run: tag }, state: ['paused'] } }).nextItems()
  assert.ok(page.some((x) => x.sandboxId === s.sandboxId), 'listed as paused')
  const again = await s.connect()
  const before = Number(await again.files.read('/tmp/count'))
  await eventually('the process goes on after the pause', async () => Number(await again.files.read('/tmp/count')) > before)
  assert.ok((await again.commands.list()).some((p) => p.pid === job.pid))
  await s.kill()
})

test('sandbox/pause, the newer name', async (k) => {
  const s = await k.create()
  assert.equal(await s.pause({ keepMemory: true }), true)
  assert.equal(await k.sdk.Sandbox.pause(s.sandboxId), false)
  await k.sdk.Sandbox.connect(s.sandboxId, { onResume: 'restore' })
  await throws(k.sdk.NotFoundError, /not found/i, () => k.sdk.Sandbox.pause(nobody))
  await s.betaPause({ keepMemory: true })
  await s.kill()
}, (k) => k.at('2.51'))

test('sandbox/lifecycle: a time-out that pauses', async (k) => {
  const opts = { timeoutMs: 2_000, metadata: { run: tag } }
  const s = k.at('2.51')
    ? await k.sdk.Sandbox.create(k.template, { ...opts, lifecycle: { onTimeout: 'pause', autoResume: false } })
    : await k.sdk.Sandbox.betaCreate(k.template, { ...opts, autoPause: true, secure: true, allowInternetAccess: false, network: {}, envs: { A: 'b' }, sandboxUrl: env.E2B_SANDBOX_URL })
  await eventually('it is paused', async () => (await k.sdk.Sandbox.getFullInfo(s.sandboxId)).state === 'paused', 20_000)
  const back = await k.sdk.Sandbox.connect(s.sandboxId, { timeoutMs: 60_000 })
  assert.equal((await back.commands.run('echo back')).stdout, 'back\n')
  await back.kill()
})

test('sandbox/lifecycle: traffic resumes', async (k) => {
  const s = await k.sdk.Sandbox.create(k.template, { timeoutMs: 60_000, lifecycle: { onTimeout: 'pause', autoResume: true } })
  const info = await s.getInfo()
  assert.deepEqual(info.lifecycle, { onTimeout: 'pause', autoResume: true })
  await s.pause()
  assert.equal((await s.commands.run('echo awake')).stdout, 'awake\n')
  await s.kill()
}, (k) => k.at('2.51'))

test('sandbox/list, filters and pages', async (k) => {
  const mine = []
  for (let i = 0; i < 3; i++) mine.push(await k.create({ metadata: { list: tag, 'i/ä': `v=${i}&x` } }))
  const pages = k.sdk.Sandbox.list({ limit: 2, query: { metadata: { list: tag }, state: ['running'] } })
  assert.equal(pages.hasNext, true)
  const first = await pages.nextItems()
  assert.equal(first.length, 2)
  assert.equal(pages.hasNext, true)
  assert.ok(pages.nextToken)
  const from = k.sdk.Sandbox.list({ limit: 2, nextToken: pages.nextToken, query: { metadata: { list: tag } } })
  const second = await pages.nextItems()
  assert.equal(second.length, 1)
  assert.equal(pages.hasNext, false)
  await throws(Error, /No more items/, () => pages.nextItems())
  assert.deepEqual((await from.nextItems()).map((x) => x.sandboxId), second.map((x) => x.sandboxId))
  assert.deepEqual([...first, ...second].map((x) => x.sandboxId).sort(), mine.map((x) => x.sandboxId).sort())
  const one = await k.sdk.Sandbox.list({ query: { metadata: { list: tag, 'i/ä': 'v=1&x' } } }).nextItems()
  assert.deepEqual(one.map((x) => x.sandboxId), [mine[1].sandboxId])
  assert.equal(one[0].metadata['i/ä'], 'v=1&x')
  assert.equal(one[0].state, 'running')
  assert.deepEqual(await k.sdk.Sandbox.list({ query: { metadata: { list: 'nobody' } } }).nextItems(), [])
  for (const s of mine) await s.kill()
})

test('sandbox/list, order, start and template', async (k) => {
  const at = new Date()
  const a = await k.create({ metadata: { order: tag } })
  await sleep(20)
  const b = await k.create({ metadata: { order: tag } })
  const ids = async (o) => (await k.sdk.Sandbox.list({ ...o, query: { metadata: { order: tag }, ...o.query } }).nextItems()).map((x) => x.sandboxId)
  assert.deepEqual(await ids({ order: 'asc' }), [a.sandboxId, b.sandboxId])
  assert.deepEqual(await ids({ order: 'desc' }), [b.sandboxId, a.sandboxId])
  assert.deepEqual((await ids({ query: { startedAfter: new Date(at - 1000) } })).length, 2)
  assert.deepEqual(await ids({ query: { startedAfter: new Date(Date.now() + 3_600_000) } }), [])
  assert.deepEqual((await ids({ query: { template: k.template } })).length, 2)
  assert.deepEqual(await ids({ query: { template: 'another' } }), [])
  await a.kill()
  await b.kill()
}, (k) => k.at('2.51'))

test('sandbox/getMetrics', async (k) => {
  const begun = new Date(Date.now() - 60_000)
  await k.sbx.commands.run('head -c 20M /dev/zero > /home/user/ballast')
  const m = await eventually('a measurement', async () => { const m = await k.sbx.getMetrics(); return m.length && m }, 20_000)
  const last = m.at(-1)
  assert.ok(last.timestamp instanceof Date && last.timestamp > begun, `timestamp ${last.timestamp}`)
  assert.ok(last.cpuCount >= 1 && last.cpuUsedPct >= 0 && last.cpuUsedPct <= 100 * last.cpuCount + 50, JSON.stringify(last))
  assert.ok(last.memTotal > 0 && last.memUsed > 0 && last.memUsed <= last.memTotal, JSON.stringify(last))
  assert.ok(last.diskTotal > 0 && last.diskUsed >= 0 && last.diskUsed <= last.diskTotal, JSON.stringify(last))
  const ranged = await k.sdk.Sandbox.getMetrics(k.sbx.sandboxId, { start: begun, end: new Date(Date.now() + 5_000) })
  assert.ok(ranged.length >= 1)
  if (k.at('2.51')) assert.deepEqual(await k.sbx.getMetrics({ start: new Date(0), end: new Date(1000) }), [])
})

const get = (host, path, headers = {}) => new Promise((resolve, reject) => {
  const [hostname, port] = host.split(':')
  https.get({ hostname, port, path, headers, agent: false }, (res) => {
    let body = ''
    res.on('data', (d) => { body += d }).on('end', () => resolve({ status: res.statusCode, body, headers: res.headers }))
  }).on('error', reject)
})

test('sandbox/getHost: a server in the sandbox', async (k) => {
  const s = await k.create()
  await s.files.write('/home/user/www/index.html', 'from inside')
  await s.commands.run('cd www && python3 -m http.server 3000', { background: true, timeoutMs: 0 })
  const host = s.getHost(3000)
  assert.equal(host, `3000-${s.sandboxId}.${s.sandboxDomain}`)
  const token = { 'e2b-traffic-access-token': s.trafficAccessToken }
  const ok = await eventually('it answers', async () => { const r = await get(host, '/', token); return r.status === 200 && r })
  assert.equal(ok.body, 'from inside')
  assert.ok([401, 403].includes((await get(host, '/')).status), 'without the token')
  assert.equal((await get(s.getHost(3999), '/', token)).status, 502, 'nobody listens')
  await s.kill()
})

test('sandbox/getHost: a WebSocket', async (k) => {
  const s = await k.create({ network: { allowPublicTraffic: true } })
  await s.files.write('/home/user/ws.py', [
    'import base64, hashlib, socket', 's = socket.create_server(("127.0.0.1", 8765))', 'while True:',
    '    c, _ = s.accept()', '    h = c.recv(65536).decode()', '    key = [l.split(": ")[1] for l in h.split("\\r\\n") if l.lower().startswith("sec-websocket-key")][0]',
    '    a = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()',
    '    c.sendall(f"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Accept: {a}\\r\\n\\r\\n".encode())',
    '    while d := c.recv(65536): c.sendall(d)'].join('\n'))
  await s.commands.run('python3 ws.py', { background: true, timeoutMs: 0 })
  const [hostname, port] = s.getHost(8765).split(':')
  const upgrade = () => new Promise((resolve, reject) => {
    const req = https.request({ hostname, port, path: '/chat', agent: false, headers: { Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==', 'Sec-WebSocket-Version': '13' } })
    req.on('upgrade', (res, socket) => resolve({ res, socket })).on('response', () => resolve(undefined)).on('error', reject).end()
  })
  const { res, socket } = await eventually('it upgrades', upgrade)
  assert.equal(res.headers['sec-websocket-accept'], 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=')
  const echoed = new Promise((resolve) => socket.once('data', resolve))
  socket.write(Buffer.from([0x81, 0x02, 0x68, 0x69]))
  assert.deepEqual([...(await echoed)], [0x81, 0x02, 0x68, 0x69])
  socket.destroy()
  await s.kill()
})

test('sandbox/network: deny', async (k) => {
  const s = await k.create({ network: { denyOut: ['0.0.0.0/0'] } })
  const r = await s.commands.run('python3 -c "import socket; socket.create_connection((\'1.1.1.1\', 80), 3)" 2>&1 || echo no way out')
  assert.match(r.stdout, /no way out/)
  await s.kill()
})

test('sandbox/network: a list of what is let out', async (k) => {
  const s = await k.create({ network: { denyOut: [k.sdk.ALL_TRAFFIC], allowOut: ['203.0.113.7'] } })
  const allowed = async () => (await k.sdk.Sandbox.getInfo(s.sandboxId)).network?.allowOut
  if (k.at('2.51')) assert.deepEqual(await allowed(), ['203.0.113.7'])
  const r = await s.commands.run('python3 -c "import socket; socket.create_connection((\'198.51.100.1\', 443), 20)" 2>&1 || echo refused')
  assert.match(r.stdout, /refused/i)
  assert.doesNotMatch(r.stdout, /timed out/, 'what is not let out fails at once')
  if (k.at('2.51')) {
    await s.updateNetwork({ denyOut: ({ allTraffic }) => [allTraffic], allowOut: ['203.0.113.8'] })
    assert.deepEqual(await allowed(), ['203.0.113.8'])
    await k.sdk.Sandbox.updateNetwork(s.sandboxId, { allowInternetAccess: false })
    assert.equal((await s.getInfo()).allowInternetAccess, false)
  }
  await s.kill()
})

test('sandbox/the class bound to a client', async (k) => {
  const client = new k.sdk.E2B({ apiKey: env.E2B_API_KEY, apiUrl: env.E2B_API_URL, sandboxUrl: env.E2B_SANDBOX_URL, domain: env.E2B_DOMAIN })
  const s = await client.Sandbox.create(k.template, { timeoutMs: 60_000 })
  assert.equal((await s.commands.run('echo bound')).stdout, 'bound\n')
  await s.kill()
  client.Template({ fileContextPath: '.', fileIgnorePatterns: ['x'] }).fromImage('debian')
}, (k) => k.at('2.51'))

test('sandbox/connection options', async (k) => {
  const lines = []
  const logger = Object.fromEntries(['debug', 'info', 'warn', 'error'].map((l) => [l, (...a) => lines.push(a)]))
  const control = new AbortController()
  const opts = { apiKey: env.E2B_API_KEY, accessToken: 'sk_e2b_' + '0'.repeat(40), domain: env.E2B_DOMAIN, requestTimeoutMs: 30_000, headers: { 'X-Extra': '1' }, logger, retries: 1, apiHeaders: { 'X-Extra': '2' }, signal: control.signal, validateApiKey: false }
  const s = await k.sdk.Sandbox.create(k.template, { ...opts, timeoutMs: 60_000 })
  assert.equal((await s.commands.run('echo ok')).stdout, 'ok\n')
  assert.ok(lines.length > 0, 'the logger was called')
  await s.kill()
  if (k.at('2.51')) {
    control.abort()
    await throws(Error, /abort/i, () => k.sdk.Sandbox.create(k.template, opts))
  }
  // One millisecond is too short for any answer, if the client checks it at all before the answer is there.
  const e = await throws(Error, /./, () => k.sdk.Sandbox.create(k.template, { requestTimeoutMs: 1 }))
  assert.ok(e.name === 'TimeoutError' || /timeout|timed out|abort/i.test(e.message), e.message)
})

test('sandbox/through a proxy', async (k) => {
  const s = await k.sdk.Sandbox.create(k.template, { timeoutMs: 60_000, proxy: env.CONF_PROXY })
  assert.equal((await s.commands.run('echo by proxy')).stdout, 'by proxy\n')
  await s.kill()
}, (k) => k.at('2.51'))

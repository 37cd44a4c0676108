import { assert, env, eventually, refused, tag, test, text, throws } from './harness.mjs'

const dir = '/home/user/files'
const missing = (k) => k.sdk.FileNotFoundError ?? k.sdk.NotFoundError

test('files/write and read', async (k) => {
  const { files } = k.sbx
  const w = await files.write(`${dir}/a/b/note.txt`, 'ä\n€')
  assert.equal(w.path, `${dir}/a/b/note.txt`)
  assert.equal(w.name, 'note.txt')
  assert.equal(w.type, 'file')
  assert.equal(await files.read(`${dir}/a/b/note.txt`), 'ä\n€')
  assert.equal(await files.read(`${dir}/a/b/note.txt`, { format: 'text' }), 'ä\n€')
  const b = await files.read(`${dir}/a/b/note.txt`, { format: 'bytes' })
  assert.ok(b instanceof Uint8Array)
  assert.equal(Buffer.from(b).toString(), 'ä\n€')
  assert.equal(await (await files.read(`${dir}/a/b/note.txt`, { format: 'blob' })).text(), 'ä\n€')
  assert.equal(await text(await files.read(`${dir}/a/b/note.txt`, { format: 'stream' })), 'ä\n€')
  await files.write(`${dir}/a/b/note.txt`, 'shorter')
  assert.equal(await files.read(`${dir}/a/b/note.txt`), 'shorter')
  await files.write('relative.txt', 'in the home')
  assert.equal(await files.read('/home/user/relative.txt'), 'in the home')
  await files.write(`${dir}/empty`, '')
  assert.equal(await files.read(`${dir}/empty`), '')
  await throws(missing(k), /./, () => files.read('/no/such/file'))
  await throws(k.sdk.InvalidArgumentError, /director/i, () => files.read(dir))
})

test('files/write of every kind of data', async (k) => {
  const { files } = k.sbx
  const bytes = new Uint8Array(1 << 20).map((_, i) => (i * 7) % 256)
  const back = async (p) => Buffer.from(await files.read(p, { format: 'bytes' }))
  await files.write(`${dir}/buffer`, bytes.buffer)
  assert.ok((await back(`${dir}/buffer`)).equals(Buffer.from(bytes)))
  await files.write(`${dir}/blob`, new Blob([bytes]))
  assert.ok((await back(`${dir}/blob`)).equals(Buffer.from(bytes)))
  await files.write(`${dir}/stream`, new Blob([bytes, bytes]).stream())
  assert.equal((await back(`${dir}/stream`)).length, 2 << 20)
  const many = await files.write([{ path: `${dir}/m1`, data: 'one' }, { path: `${dir}/new/m2`, data: new Blob(['two']) }])
  assert.deepEqual(many.map((x) => x.path), [`${dir}/m1`, `${dir}/new/m2`])
  assert.equal(await files.read(`${dir}/new/m2`), 'two')
  assert.deepEqual(await files.write([]), [])
  const odd = `${dir}/mit leer ä?&#%+.txt`
  await files.write(odd, 'odd')
  assert.equal(await files.read(odd), 'odd')
})

test('files/writeFiles, octet-stream, gzip', async (k) => {
  const { files } = k.sbx
  const w = await files.writeFiles([{ path: `${dir}/w1`, data: '1' }, { path: `${dir}/w2`, data: '2' }], { user: 'user' })
  assert.equal(w.length, 2)
  await files.writeFiles([{ path: `${dir}/w3`, data: 'three' }, { path: `${dir}/w4`, data: 'four' }], { useOctetStream: true, gzip: true })
  assert.equal(await files.read(`${dir}/w4`, { gzip: true }), 'four')
  await files.write(`${dir}/octets`, 'octets', { useOctetStream: true })
  assert.equal(await files.read(`${dir}/octets`), 'octets')
  await files.write(`${dir}/packed`, 'p'.repeat(100_000), { gzip: true })
  assert.equal((await files.read(`${dir}/packed`)).length, 100_000)
  assert.equal((await text(await files.read(`${dir}/packed`, { format: 'stream', gzip: true, streamIdleTimeoutMs: 10_000 }))).length, 100_000)
  const metadata = { Source: 'test', run: '7' }
  const kept = await files.write(`${dir}/with`, 'x', { metadata })
  assert.deepEqual(kept.metadata, { source: 'test', run: '7' })
  assert.deepEqual((await files.getInfo(`${dir}/with`)).metadata, { source: 'test', run: '7' })
  await files.writeFiles([{ path: `${dir}/with2`, data: 'x' }], { metadata: { a: 'b' } })
  assert.deepEqual((await files.list(dir)).find((e) => e.name === 'with2').metadata, { a: 'b' })
  await files.write(`${dir}/with`, 'y')
  assert.equal((await files.getInfo(`${dir}/with`)).metadata, undefined, 'another upload is another file')
}, (k) => k.at('2.51'))

test('files/list, exists and getInfo', async (k) => {
  const { files, commands } = k.sbx
  const base = `${dir}/tree`
  await files.write(`${base}/top.txt`, '12345')
  await files.write(`${base}/sub/deep/leaf`, 'x')
  await commands.run(`ln -s top.txt ${base}/link; chmod 640 ${base}/top.txt`)
  const names = (l) => l.map((e) => e.path.slice(base.length + 1)).sort()
  assert.deepEqual(names(await files.list(base)), ['link', 'sub', 'top.txt'])
  assert.deepEqual(names(await files.list(base, { depth: 2 })), ['link', 'sub', 'sub/deep', 'top.txt'])
  assert.deepEqual(names(await files.list(base, { depth: 9 })), ['link', 'sub', 'sub/deep', 'sub/deep/leaf', 'top.txt'])
  await throws(k.sdk.InvalidArgumentError, /depth/i, () => files.list(base, { depth: 0 }))
  await throws(missing(k), /./, () => files.list(`${base}/nothing`))
  await throws(k.sdk.InvalidArgumentError, /director/i, () => files.list(`${base}/top.txt`))
  const entry = (await files.list(base)).find((e) => e.name === 'top.txt')
  const info = await files.getInfo(`${base}/top.txt`)
  assert.deepEqual(entry, info)
  assert.equal(info.type, 'file')
  assert.equal(info.size, 5)
  assert.equal(info.mode & 0o777, 0o640)
  assert.match(info.permissions, /rw-r-----$/)
  assert.equal(info.owner, 'user')
  assert.equal(info.group, 'user')
  assert.ok(info.modifiedTime instanceof Date && Math.abs(info.modifiedTime - Date.now()) < 120_000)
  assert.equal((await files.getInfo(`${base}/sub`)).type, 'dir')
  const link = await files.getInfo(`${base}/link`)
  assert.equal(link.symlinkTarget, `${base}/top.txt`)
  assert.equal(await files.exists(`${base}/top.txt`), true)
  assert.equal(await files.exists(base), true)
  assert.equal(await files.exists(`${base}/nothing`), false)
  await throws(missing(k), /./, () => files.getInfo(`${base}/nothing`))
})

test('files/makeDir, rename and remove', async (k) => {
  const { files } = k.sbx
  const base = `${dir}/moves`
  assert.equal(await files.makeDir(`${base}/x/y`), true)
  assert.equal(await files.makeDir(`${base}/x/y`), false)
  await files.write(`${base}/x/y/f`, 'moved')
  const moved = await files.rename(`${base}/x`, `${base}/z`)
  assert.equal(moved.path, `${base}/z`)
  assert.equal(moved.type, 'dir')
  assert.equal(await files.exists(`${base}/x`), false)
  assert.equal(await files.read(`${base}/z/y/f`), 'moved')
  await files.remove(`${base}/z`)
  assert.equal(await files.exists(`${base}/z`), false)
  await throws(missing(k), /./, () => files.rename(`${base}/none`, `${base}/some`))
  await files.write(`${base}/file`, 'x')
  await throws(k.sdk.InvalidArgumentError, /director/i, () => files.makeDir(`${base}/file`))
})

test('files/of another user', async (k) => {
  const { files } = k.sbx
  const opts = { user: 'root' }
  await files.write('own.txt', 'root', opts)
  const info = await files.getInfo('/root/own.txt', opts)
  assert.equal(info.owner, 'root')
  assert.equal(info.path, '/root/own.txt')
  assert.equal(await files.read('own.txt', opts), 'root')
  assert.equal(await files.exists('own.txt', opts), true)
  assert.equal(await files.makeDir('d/e', opts), true)
  assert.ok((await files.list('d', opts)).some((e) => e.name === 'e' && e.owner === 'root'))
  await files.rename('own.txt', 'd/own.txt', opts)
  const w = await files.watchDir('d', () => {}, { ...opts, timeoutMs: 5_000 })
  await w.stop()
  await files.remove('d', opts)
  assert.equal(await files.exists('d', opts), false)
  assert.equal((await files.getInfo('relative.txt').catch(() => ({ owner: 'user' }))).owner, 'user')
})

test('files/watchDir', async (k) => {
  const { files } = k.sbx
  const base = `${dir}/watched`
  await files.makeDir(`${base}/inner`)
  const seen = []
  const has = (type, name) => () => seen.some((e) => e.type === type && e.name === name)
  let exited = 0
  const flat = []
  const f = await files.watchDir(base, (e) => { flat.push(e.name) }, { timeoutMs: 0 })
  const w = await files.watchDir(base, (e) => { seen.push(e) }, { recursive: true, timeoutMs: 60_000, onExit: () => { exited++ } })
  const { CREATE, WRITE, RENAME, REMOVE, CHMOD } = k.sdk.FilesystemEventType
  await files.write(`${base}/new.txt`, 'x')
  await eventually('create', has(CREATE, 'new.txt'))
  await eventually('write', has(WRITE, 'new.txt'))
  await k.sbx.commands.run(`chmod 600 ${base}/new.txt`)
  await eventually('chmod', has(CHMOD, 'new.txt'))
  await files.rename(`${base}/new.txt`, `${base}/old.txt`)
  await eventually('rename', has(RENAME, 'new.txt'))
  await files.remove(`${base}/old.txt`)
  await eventually('remove', has(REMOVE, 'old.txt'))
  await files.write(`${base}/inner/deep.txt`, 'x')
  await eventually('below', has(CREATE, 'inner/deep.txt'))
  await files.write(`${base}/later/on.txt`, 'x')
  await eventually('a directory made later', has(CREATE, 'later'))
  await files.write(`${base}/later/on2.txt`, 'x')
  await eventually('a file in it', has(CREATE, 'later/on2.txt'))
  await w.stop()
  await f.stop()
  assert.ok(!flat.includes('inner/deep.txt'), 'not recursive')
  await eventually('onExit', () => exited === 1)
  const n = seen.length
  await files.write(`${base}/unseen`, 'x')
  await k.sbx.commands.run('sleep 0.3')
  assert.equal(seen.length, n, 'nothing after stop')
  await throws(missing(k), /./, () => files.watchDir(`${base}/none`, () => {}))
  await throws(k.sdk.InvalidArgumentError, /director/i, () => files.watchDir(`${base}/unseen`, () => {}))
})

test('files/watchDir ends by its time-out', async (k) => {
  let err = 'running'
  await k.sbx.files.watchDir('/tmp', () => {}, { timeoutMs: 500, onExit: (e) => { err = e } })
  await eventually('onExit', () => err !== 'running')
  assert.ok(err instanceof k.sdk.TimeoutError, String(err))
})

test('files/watchDir, newer options', async (k) => {
  const seen = []
  const w = await k.sbx.files.watchDir(dir, (e) => { seen.push(e) }, { includeEntry: true, allowNetworkMounts: true })
  await k.sbx.files.write(`${dir}/entry`, '123')
  const e = await eventually('an entry', () => seen.find((x) => x.name === 'entry' && x.entry?.size === 3))
  assert.equal(e.entry.path, `${dir}/entry`)
  await w.stop()
}, (k) => k.at('2.51'))

test('files/uploadUrl and downloadUrl', async (k) => {
  const s = k.sbx
  const own = { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49983' }
  const form = (body) => { const f = new FormData(); f.append('file', new Blob([body]), 'up.txt'); return f }
  // The year-old client gives URLs of the sandbox's host; both name the sandbox by it or by header.
  for (const opts of [{}, { useSignatureExpiration: 60 }, { user: 'root' }, { user: 'root', useSignatureExpiration: 60 }]) {
    const path = opts.user ? '/root/up.txt' : '/home/user/up.txt'
    const up = await fetch(await s.uploadUrl(path, opts), { method: 'POST', body: form(`by ${JSON.stringify(opts)}`), headers: own })
    assert.equal(up.status, 200, await up.text())
    const down = await fetch(await s.downloadUrl(path, opts), { headers: own })
    assert.equal(down.status, 200)
    assert.equal(await down.text(), `by ${JSON.stringify(opts)}`)
  }
  const url = await s.downloadUrl('/home/user/up.txt', { useSignatureExpiration: 60 })
  const forged = async (change) => { const u = new URL(url); change(u.searchParams); return (await fetch(u, { headers: own })).status }
  assert.equal(await forged((p) => p.set('signature', 'v1_' + 'A'.repeat(43))), 401)
  assert.equal(await forged((p) => p.set('path', '/etc/passwd')), 401)
  assert.equal(await forged((p) => p.set('signature_expiration', String(Math.floor(Date.now() / 1000) + 9999))), 401)
  assert.equal(await forged((p) => { p.delete('signature'); p.delete('signature_expiration') }), 401)
  const past = await k.sdk.getSignature({ path: '/home/user/up.txt', operation: 'read', user: 'user', expirationInSeconds: -10, envdAccessToken: s.envdAccessToken ?? 'x' })
  assert.match(past.signature, /^v1_/)
  const whole = await fetch(await s.uploadUrl(), { method: 'POST', body: form('to the home'), headers: own })
  assert.equal(whole.status, 200, await whole.text())
  assert.equal(await s.files.read('/home/user/up.txt'), 'to the home')
  const part = await fetch(await s.downloadUrl('/home/user/up.txt'), { headers: { ...own, Range: 'bytes=3-5' } })
  assert.equal(part.status, 206)
  assert.equal(await part.text(), 'the')
  assert.ok(env && tag)
})

test('files/a full disk', async (k) => {
  const s = await k.create()
  await s.commands.run('dd if=/dev/zero of=/home/user/big bs=1M || true')
  const e = await throws(Error, /./, async () => { for (let i = 0; i < 400; i++) await s.files.write(`/home/user/fill${i}`, 'x'.repeat(4_000_000)) })
  assert.ok(e instanceof k.sdk.NotEnoughSpaceError, `${e.constructor.name}: ${e.message}`)
  await s.kill()
})

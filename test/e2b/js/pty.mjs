import { assert, eventually, test, throws } from './harness.mjs'

const terminal = () => {
  const d = new TextDecoder()
  const t = { text: '', onData: (b) => { t.text += d.decode(b, { stream: true }) } }
  return t
}
const bytes = (s) => new TextEncoder().encode(s)

test('pty/create, input, size and exit', async (k) => {
  const t = terminal()
  const h = await k.sbx.pty.create({ cols: 90, rows: 33, onData: t.onData, cwd: '/usr', envs: { PTY_ENV: 'set' }, user: 'user', timeoutMs: 60_000 })
  assert.ok(h.pid > 0)
  await k.sbx.pty.sendInput(h.pid, bytes('stty size; pwd; echo $PTY_ENV-$TERM; id -un; tty\n'))
  await eventually('the answers', () => /33 90/.test(t.text) && /\/usr\r\n/.test(t.text) && /set-xterm/.test(t.text) && /user\r\n/.test(t.text) && /\/dev\/pts\//.test(t.text)).catch((e) => { throw new Error(e.message + ': ' + JSON.stringify(t.text)) })
  await k.sbx.pty.resize(h.pid, { cols: 120, rows: 40 })
  await k.sbx.pty.sendInput(h.pid, bytes('stty size\n'))
  await eventually('the new size', () => /40 120/.test(t.text))
  await k.sbx.pty.sendInput(h.pid, bytes('sleep 300\n'))
  await eventually('it sleeps', async () => (await k.sbx.commands.run('pgrep -fx "sleep 300" || true')).stdout !== '')
  await k.sbx.pty.sendInput(h.pid, bytes('\x03'))
  await k.sbx.pty.sendInput(h.pid, bytes('echo after-$((40+2))\n'))
  await eventually('Ctrl-C interrupts', () => /after-42/.test(t.text))
  await k.sbx.pty.sendInput(h.pid, bytes('exit 5\n'))
  const e = await throws(k.sdk.CommandExitError, /./, () => h.wait())
  assert.equal(e.exitCode, 5)
})

test('pty/kill', async (k) => {
  const h = await k.sbx.pty.create({ cols: 80, rows: 24, onData: () => {} })
  assert.ok((await k.sbx.commands.list()).some((p) => p.pid === h.pid))
  assert.equal(await k.sbx.pty.kill(h.pid), true)
  await throws(k.sdk.CommandExitError, /./, () => h.wait())
  assert.equal(await k.sbx.pty.kill(h.pid), false)
  await throws(k.sdk.NotFoundError, /./, () => k.sbx.pty.sendInput(999_999, bytes('x')))
  await throws(k.sdk.NotFoundError, /./, () => k.sbx.pty.resize(999_999, { cols: 1, rows: 1 }))
})

test('pty/connect', async (k) => {
  const a = terminal()
  const b = terminal()
  const h = await k.sbx.pty.create({ cols: 80, rows: 24, onData: a.onData })
  await h.disconnect()
  const again = await k.sbx.pty.connect(h.pid, { onData: b.onData, timeoutMs: 60_000 })
  assert.equal(again.pid, h.pid)
  await k.sbx.pty.sendInput(h.pid, bytes('echo seen-$((1+1))\n'))
  await eventually('the second terminal sees it', () => /seen-2/.test(b.text))
  assert.equal(await again.kill(), true)
}, (k) => k.at('2.51'))

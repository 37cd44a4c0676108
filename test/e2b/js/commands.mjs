import { assert, env, eventually, sleep, test, throws } from './harness.mjs'

test('commands/run, output and exit codes', async (k) => {
  const { commands } = k.sbx
  const ok = await commands.run('echo out; echo err >&2')
  assert.deepEqual({ ...ok }, { ...ok, exitCode: 0, stdout: 'out\n', stderr: 'err\n' })
  const e = await throws(k.sdk.CommandExitError, /./, () => commands.run('echo before; echo why >&2; exit 7'))
  assert.equal(e.exitCode, 7)
  assert.equal(e.stdout, 'before\n')
  assert.equal(e.stderr, 'why\n')
  const killed = await throws(k.sdk.CommandExitError, /./, () => commands.run('kill -9 $$'))
  assert.notEqual(killed.exitCode, 0)
  const missing = await throws(k.sdk.CommandExitError, /./, () => commands.run('no-such-program'))
  assert.equal(missing.exitCode, 127)
  assert.equal((await commands.run('cat')).stdout, '', 'stdin is at its end')
})

test('commands/run, cwd, envs and user', async (k) => {
  const { commands } = k.sbx
  assert.equal((await commands.run('pwd', { cwd: '/usr/lib' })).stdout, '/usr/lib\n')
  assert.equal((await commands.run('echo "$A|$B"', { envs: { A: "it's", B: 'line\nend' } })).stdout, "it's|line\nend\n")
  assert.equal((await commands.run('id -un; echo $HOME; pwd', { user: 'root' })).stdout, 'root\n/root\n/root\n')
  assert.equal((await commands.run('id -un; id -u; pwd', { user: 'user' })).stdout, 'user\n1000\n/home/user\n')
  assert.equal((await commands.run('sudo id -un')).stdout, 'root\n')
  assert.equal((await commands.run('echo $SHELL; shopt -q login_shell && echo login')).stdout.endsWith('login\n'), true)
  await throws(k.sdk.InvalidArgumentError, /no-such-dir/, () => commands.run('pwd', { cwd: '/no-such-dir' }))
  await throws(k.sdk.SandboxError, /nobody-here|user/i, () => commands.run('id', { user: 'nobody-here' }).catch((e) => { if (e instanceof k.sdk.AuthenticationError) throw new k.sdk.SandboxError(e.message); throw e }))
})

test('commands/run, callbacks come while it runs', async (k) => {
  const got = []
  const at = []
  const r = await k.sbx.commands.run('for i in 1 2 3; do echo o$i; echo e$i >&2; sleep 0.5; done', {
    onStdout: (d) => { got.push(d); at.push(Date.now()) }, onStderr: (d) => { got.push(d) },
  })
  assert.equal(r.stdout, 'o1\no2\no3\n')
  assert.deepEqual(got.join('').split('\n').filter(Boolean).sort(), ['e1', 'e2', 'e3', 'o1', 'o2', 'o3'])
  assert.ok(at.at(-1) - at[0] >= 400, 'not all at the end')
})

test('commands/run, time-out', async (k) => {
  const begun = Date.now()
  const e = await throws(k.sdk.TimeoutError, /./, () => k.sbx.commands.run('echo first; sleep 6655 & sleep 6655', { timeoutMs: 1_000 }))
  assert.ok(e && Date.now() - begun < 30_000, `after ${Date.now() - begun} ms`)
  await eventually('nothing of it goes on', async () => (await k.sbx.commands.run('pgrep -c -f "sleep 665[5]" || true')).stdout.trim() === '0')
  assert.equal((await k.sbx.commands.run('sleep 1.5; echo done', { timeoutMs: 0 })).stdout, 'done\n')
  const short = await throws(Error, /./, () => k.sbx.commands.run('sleep 5', { requestTimeoutMs: 1 }))
  assert.ok(/time|abort/i.test(short.message + short.name), short.message)
})

test('commands/run, much output and odd bytes', async (k) => {
  const r = await k.sbx.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
  assert.equal(r.stdout.length, 3_000_000)
  assert.equal((await k.sbx.commands.run("printf 'ä€😀'")).stdout, 'ä€😀')
  const slow = await k.sbx.commands.run("printf '\\xe2'; sleep 0.1; printf '\\x82\\xac'")
  assert.ok(k.at('2.51') ? slow.stdout === '€' : slow.stdout.length > 0, slow.stdout)
  const long = 'y'.repeat(100_000)
  assert.equal((await k.sbx.commands.run(`printf %s ${long} | wc -c`)).stdout.trim(), '100000')
})

test('commands/background, wait, list and kill', async (k) => {
  const { commands } = k.sbx
  const h = await commands.run('echo begun; sleep 0.3; exit 3', { background: true })
  assert.ok(h.pid > 0)
  assert.equal(h.exitCode, undefined)
  const e = await throws(k.sdk.CommandExitError, /./, () => h.wait())
  assert.equal(e.exitCode, 3)
  assert.equal(h.exitCode, 3)
  assert.equal(h.stdout, 'begun\n')
  assert.equal(h.stderr, '')
  assert.ok(h.error === undefined || typeof h.error === 'string')
  const long = await commands.run('sleep 600', { background: true, cwd: '/tmp', envs: { MARK: 'yes' }, timeoutMs: 0 })
  const entry = (await commands.list()).find((p) => p.pid === long.pid)
  assert.ok(entry, 'listed')
  assert.equal(entry.cmd, '/bin/bash')
  assert.deepEqual(entry.args, ['-l', '-c', 'sleep 600'])
  assert.equal(entry.envs.MARK, 'yes')
  assert.equal(entry.cwd, '/tmp')
  assert.equal(await commands.kill(long.pid), true)
  await throws(k.sdk.CommandExitError, /./, () => long.wait())
  assert.equal(await commands.kill(long.pid), false)
  assert.ok(!(await commands.list()).some((p) => p.pid === long.pid))
  const mine = await commands.run('sleep 600', { background: true })
  assert.equal(await mine.kill(), true)
  await throws(k.sdk.CommandExitError, /./, () => mine.wait())
  assert.equal(await mine.kill(), false)
  assert.equal(await commands.kill(999_999), false)
})

test('commands/a background process outlives its shell', async (k) => {
  const begun = Date.now()
  const r = await k.sbx.commands.run('(sleep 3; echo late > /tmp/late) & echo at once')
  assert.equal(r.stdout, 'at once\n')
  assert.ok(Date.now() - begun < 2_800, 'the call returns when its own command has ended')
  await eventually('it lives on', () => k.sbx.files.exists('/tmp/late'))
})

test('commands/connect and disconnect', async (k) => {
  const { commands } = k.sbx
  let first = ''
  const h = await commands.run('for i in $(seq 1 40); do echo tick $i; sleep 0.1; done; echo the end', { background: true, onStdout: (d) => { first += d } })
  await eventually('it ticks', () => first.includes('tick 1'))
  await h.disconnect()
  const had = first
  let second = ''
  const again = await commands.connect(h.pid, { onStdout: (d) => { second += d }, onStderr: () => {}, timeoutMs: 30_000 })
  assert.equal(again.pid, h.pid)
  const r = await again.wait()
  assert.equal(r.exitCode, 0)
  assert.match(second, /tick 40\nthe end\n$/)
  await sleep(50)
  assert.equal(first, had, 'no callbacks after disconnect')
  await throws(k.sdk.NotFoundError, /./, () => commands.connect(999_999))
})

test('commands/stdin', async (k) => {
  const { commands } = k.sbx
  let out = ''
  const h = await commands.run('while read -r line; do echo "<$line>"; [ "$line" = quit ] && exit 4; done', { background: true, stdin: true, onStdout: (d) => { out += d } })
  await commands.sendStdin(h.pid, 'one\n')
  await eventually('an answer', () => out === '<one>\n')
  await commands.sendStdin(h.pid, 'quit\n')
  const e = await throws(k.sdk.CommandExitError, /./, () => h.wait())
  assert.equal(e.exitCode, 4)
  await throws(k.sdk.NotFoundError, /./, () => commands.sendStdin(999_999, 'x'))
})

test('commands/stdin is closed', async (k) => {
  const { commands } = k.sbx
  const h = await commands.run('cat; echo end', { background: true, stdin: true })
  await h.sendStdin(new TextEncoder().encode('bytes\n'))
  await h.closeStdin()
  assert.equal((await h.wait()).stdout, 'bytes\nend\n')
  const other = await commands.run('wc -c', { background: true, stdin: true })
  await commands.sendStdin(other.pid, 'x'.repeat(200_000))
  await commands.closeStdin(other.pid)
  assert.equal((await other.wait()).stdout.trim(), '200000')
  const without = await commands.run('sleep 5', { background: true })
  await throws(k.sdk.SandboxError, /stdin/i, () => commands.sendStdin(without.pid, 'x'))
  await without.kill()
}, (k) => k.at('2.51'))

test('commands/many at once', async (k) => {
  const all = await Promise.all(Array.from({ length: 30 }, (_, i) => k.sbx.commands.run(`echo ${i}`)))
  assert.deepEqual(all.map((r) => Number(r.stdout)), Array.from({ length: 30 }, (_, i) => i))
})

test('commands/a killed sandbox', async (k) => {
  const s = await k.create()
  const h = await s.commands.run('sleep 600', { background: true, timeoutMs: 0 })
  const waited = h.wait().then(() => undefined, (e) => e)
  await s.kill()
  const e = await Promise.race([waited, sleep(10_000)])
  assert.ok(e instanceof Error, 'the wait ends when the sandbox does')
  assert.ok(env)
})

import { assert, env, eventually, test, throws } from './harness.mjs'

const newer = (k) => k.at('2.51')
const repo = '/home/user/repo'
const shared = { envs: { GIT_TRACE: '0' }, user: 'user', cwd: '/home/user', timeoutMs: 30_000 }

test('git/a repository of one\'s own', async (k) => {
  const { git, files, commands } = k.sbx
  await commands.run(`rm -rf ${repo} /home/user/remote.git /home/user/copy`)
  await git.configureUser('Ada', 'ada@example.com', { scope: 'global' })
  assert.equal(await git.getConfig('user.name', { scope: 'global' }), 'Ada')
  await git.init(repo, { initialBranch: 'main', ...shared })
  await git.setConfig('core.pager', 'cat', { scope: 'local', path: repo })
  assert.equal(await git.getConfig('core.pager', { scope: 'local', path: repo }), 'cat')
  await git.configureUser('Bob', 'bob@example.com', { scope: 'local', path: repo })
  await files.write(`${repo}/a.txt`, '1')
  let s = await git.status(repo)
  assert.equal(s.currentBranch, 'main')
  assert.equal(s.isClean, false)
  assert.equal(s.hasUntracked, true)
  assert.equal(s.untrackedCount, 1)
  await git.add(repo, { files: ['a.txt'] })
  s = await git.status(repo)
  assert.equal(s.stagedCount, 1)
  await git.commit(repo, 'First', { authorName: 'Ada', authorEmail: 'ada@example.com' })
  await git.commit(repo, 'Nothing', { allowEmpty: true })
  assert.match((await commands.run('git log --format="%an: %s"', { cwd: repo })).stdout, /Ada: First/)
  assert.equal((await git.status(repo)).isClean, true)
  await git.createBranch(repo, 'topic')
  await git.checkoutBranch(repo, 'main')
  assert.deepEqual((await git.branches(repo)).branches.sort(), ['main', 'topic'])
  assert.equal((await git.branches(repo)).currentBranch, 'main')
  await git.deleteBranch(repo, 'topic', { force: true })
  await files.write(`${repo}/a.txt`, '2')
  await git.add(repo, { all: true })
  await git.reset(repo, { paths: ['a.txt'] })
  assert.equal((await git.status(repo)).stagedCount, 0)
  await git.restore(repo, { paths: ['a.txt'], worktree: true, staged: false })
  assert.equal(await files.read(`${repo}/a.txt`), '1')
  await files.write(`${repo}/a.txt`, '3')
  await git.add(repo)
  await git.restore(repo, { paths: ['a.txt'], staged: true, worktree: true, source: 'HEAD' })
  await git.reset(repo, { mode: 'hard', target: 'HEAD~1' })
  assert.doesNotMatch((await commands.run('git log --format=%s', { cwd: repo })).stdout, /Nothing/)
}, newer)

test('git/remotes', async (k) => {
  const { git, files, commands } = k.sbx
  await git.init('/home/user/remote.git', { bare: true, initialBranch: 'main' })
  await git.remoteAdd(repo, 'origin', '/home/user/remote.git')
  await git.push(repo, { remote: 'origin', branch: 'main', setUpstream: true })
  await git.remoteAdd(repo, 'origin', '/home/user/remote.git', { overwrite: true, fetch: true })
  assert.equal(await git.remoteGet(repo, 'origin'), '/home/user/remote.git')
  assert.equal(await git.remoteGet(repo, 'none'), undefined)
  await git.clone('/home/user/remote.git', { path: '/home/user/copy', branch: 'main', depth: 1 })
  assert.equal(await files.read('/home/user/copy/a.txt'), '1')
  await files.write(`${repo}/b.txt`, 'b')
  await git.add(repo)
  await git.commit(repo, 'Second')
  assert.equal((await git.status(repo)).ahead, 1)
  await git.push(repo)
  await git.pull('/home/user/copy', { remote: 'origin', branch: 'main' })
  assert.equal(await files.read('/home/user/copy/b.txt'), 'b')
  await git.init('/home/user/lonely', { initialBranch: 'main' })
  await git.commit('/home/user/lonely', 'x', { allowEmpty: true })
  await git.remoteAdd('/home/user/lonely', 'origin', '/home/user/remote.git')
  await throws(k.sdk.GitUpstreamError, /./, () => git.pull('/home/user/lonely'))
  await commands.run('rm -rf /home/user/lonely')
}, newer)

test('git/passwords', async (k) => {
  const { git, files, commands } = k.sbx
  await commands.run('cp -r /home/user/remote.git /tmp/served.git && cd /tmp/served.git && git update-server-info')
  await files.write('/home/user/serve.py', [
    'import base64, functools, http.server', 'class H(http.server.SimpleHTTPRequestHandler):', '    def do_GET(self):',
    '        if self.headers.get("Authorization") != "Basic " + base64.b64encode(b"ada:secret").decode():',
    '            self.send_response(401); self.send_header("WWW-Authenticate", "Basic realm=x"); self.send_header("Content-Length", "0"); self.end_headers(); return',
    '        super().do_GET()', 'http.server.ThreadingHTTPServer(("127.0.0.1", 8090), functools.partial(H, directory="/tmp")).serve_forever()'].join('\n'))
  await commands.run('python3 serve.py', { background: true, timeoutMs: 0 })
  await eventually('it serves', async () => (await commands.run('python3 -c "import socket; socket.create_connection((\'127.0.0.1\', 8090))" && echo up || true')).stdout === 'up\n')
  const url = 'http://127.0.0.1:8090/served.git'
  await throws(k.sdk.GitAuthError, /./, () => git.clone(url, { path: '/home/user/denied' }))
  await git.clone(url, { path: '/home/user/named', username: 'ada', password: 'secret' })
  assert.doesNotMatch((await commands.run('cat .git/config', { cwd: '/home/user/named' })).stdout, /secret/)
  await git.clone(url, { path: '/home/user/stored', username: 'ada', password: 'secret', dangerouslyStoreCredentials: true })
  assert.match((await commands.run('cat .git/config', { cwd: '/home/user/stored' })).stdout, /secret/)
  await git.pull('/home/user/named', { username: 'ada', password: 'secret', remote: 'origin', branch: 'main' })
  await throws(Error, /./, () => git.push('/home/user/named', { username: 'ada', password: 'wrong', remote: 'origin', branch: 'main' }))
  await git.dangerouslyAuthenticate({ username: 'ada', password: 'secret', host: '127.0.0.1:8090', protocol: 'http' })
  await git.clone(url, { path: '/home/user/remembered' })
  assert.ok(env)
}, newer)

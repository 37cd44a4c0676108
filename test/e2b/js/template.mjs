import { mkdtempSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { assert, env, eventually, limited, mute, refused, sleep, tag, test, throws } from './harness.mjs'

const image = env.CONF_IMAGE
let n = 0
const alias = (what) => `${what}-${tag}-${n++}`
// build takes the arguments of both ages.
const build = (k, t, name, opts = {}) => (k.at('2.51') ? k.sdk.Template.build(t, name, opts) : k.sdk.Template.build(t, { alias: name, ...opts }))
const start = (k, t, name, opts = {}) => (k.at('2.51') ? k.sdk.Template.buildInBackground(t, name, opts) : k.sdk.Template.buildInBackground(t, { alias: name, ...opts }))
// from starts a builder at the conformance template, in a directory of its own.
function from(k, files = {}) {
  const fileContextPath = mkdtempSync(join(tmpdir(), 'dsec-conf-'))
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(fileContextPath, name, '..'), { recursive: true })
    writeFileSync(join(fileContextPath, name), text)
  }
  return { dir: fileContextPath, t: k.sdk.Template({ fileContextPath, fileIgnorePatterns: ['**/*.ignored'] }) }
}
async function within(k, template, fn) {
  const s = await k.sdk.Sandbox.create(template, { timeoutMs: 60_000 })
  try { return await fn(s) } finally { await s.kill() }
}

test('template/build with every instruction', async (k) => {
  const { t, dir } = from(k, { 'app.txt': 'app', 'conf/a.conf': 'a', 'conf/b.ignored': 'b', 'one': '1', 'two': '2', 'big': 'x'.repeat(100_000), 'n1': 'n1', 'n2': 'n2' })
  symlinkSync('app.txt', join(dir, 'link'))
  const b = t.fromTemplate(k.template)
    .setUser('root').setWorkdir('/opt/app').setEnvs({ STAGE: 'built', QUOTED: "it's $HOME" })
    .runCmd('echo "$STAGE" > stage; pwd > where; id -un > who')
    .copy('app.txt', '/opt/app/')
    .copy(['one', 'two'], '/opt/app/many/', { user: 'user', mode: 0o750, forceUpload: true, ...(k.at('2.51') ? { gzip: false } : {}) })
    .copy('link', '/opt/app/resolved', { resolveSymlinks: true })
    .copy('conf', '/opt/app/conf')
    .copyItems([{ src: 'n1', dest: '/opt/app/n1' }, { src: 'n2', dest: '/opt/app/n2', mode: 0o600 }])
    .makeDir('/opt/app/data', { mode: 0o755, user: 'root' }).makeDir(['/opt/app/l1', '/opt/app/l2'])
    .makeSymlink('/opt/app/app.txt', '/opt/app/sym', { user: 'root', force: true })
    .rename('/opt/app/n1', '/opt/app/renamed', { force: true, user: 'root' })
    .remove('/opt/app/l2', { force: true, recursive: true, user: 'root' })
    .runCmd(['echo first >> log', 'echo second >> log'], { user: 'root' })
    .gitClone('file:///srv/example.git', '/opt/app/repo', { branch: 'main', depth: 1, user: 'root' })
    .setUser('user').setWorkdir('/home/user')
    .runCmd('id -un > made-by; pwd >> made-by')
  const name = alias('every')
  const logs = []
  const info = await build(k, b, name, { cpuCount: 1, memoryMB: 256, onBuildLogs: (l) => logs.push(l), ...(k.at('2.51') ? { skipCache: true, minFreeDiskMb: 16 } : { skipCache: true, apiKey: env.E2B_API_KEY, domain: env.E2B_DOMAIN }) })
  assert.ok(info.templateId && info.buildId, JSON.stringify(info))
  assert.ok(logs.length > 2 && logs.every((l) => l.timestamp instanceof Date && typeof l.message === 'string'), 'logs')
  assert.ok(logs[0] instanceof k.sdk.LogEntryStart && logs.at(-1) instanceof k.sdk.LogEntryEnd)
  for (const l of [logs[0], logs[1], logs.at(-1)]) assert.match(l.toString(), /./)
  const seen = await within(k, name, async (s) => {
    assert.equal((await s.getInfo()).cpuCount ?? 1, 1)
    assert.equal((await k.sdk.Sandbox.getFullInfo(s.sandboxId)).memoryMB, 256)
    return (await s.commands.run(`cd /opt/app && for f in stage where who app.txt many/one many/two resolved conf/a.conf renamed n2 sym log repo/README /home/user/made-by; do echo "$f=$(sudo cat $f | tr '\\n' ,)"; done
      stat -c '%U %a' many/one; stat -c %a n2; test -L resolved || echo regular; test -e conf/b.ignored || echo ignored; test -d l1 && test ! -e l2 && echo dirs; stat -c %a data`)).stdout
  })
  assert.equal(seen, `stage=built,\nwhere=/opt/app,\nwho=root,\napp.txt=app\nmany/one=1\nmany/two=2\nresolved=app\nconf/a.conf=a\nrenamed=n1\nn2=n2\nsym=app\nlog=first,second,\nrepo/README=example,\n/home/user/made-by=user,/home/user,\nuser 750\n600\nregular\nignored\ndirs\n755\n`)
})

test('template/start and ready commands', async (k) => {
  const { t } = from(k)
  const name = alias('served')
  await build(k, t.fromTemplate(k.template).setStartCmd('cd /tmp && python3 -m http.server 8000', k.sdk.waitForPort(8000)), name)
  await within(k, name, async (s) => {
    const r = await s.commands.run('python3 -c "import urllib.request; print(urllib.request.urlopen(\'http://127.0.0.1:8000\').status)"; id -un')
    assert.equal(r.stdout, '200\nuser\n', 'it serves when the create returns')
  })
  const file = alias('file')
  await build(k, from(k).t.fromTemplate(k.template).setStartCmd('sleep 0.2; touch /tmp/ready; sleep 600', k.sdk.waitForFile('/tmp/ready')), file)
  await within(k, file, async (s) => assert.equal(await s.files.exists('/tmp/ready'), true))
  const never = from(k).t.fromTemplate(k.template).setReadyCmd(k.sdk.waitForTimeout(100))
  await build(k, never, alias('timeout'))
  assert.match(k.sdk.waitForURL('http://localhost:1/x', 204).getCmd(), /localhost:1\/x/)
  assert.match(k.sdk.waitForProcess('nginx').getCmd(), /nginx/)
})

test('template/from an image of a registry', async (k) => {
  const name = alias('image')
  await build(k, from(k).t.fromImage(image).runCmd('echo from-image > /home/user/mark'), name)
  await within(k, name, async (s) => assert.equal(await s.files.read('/home/user/mark'), 'from-image\n'))
  const locked = alias('locked')
  await build(k, from(k).t.fromImage(env.CONF_PRIVATE_IMAGE, { username: 'ada', password: 'secret' }), locked)
  await within(k, locked, async (s) => assert.equal((await s.commands.run('id -un')).stdout, 'user\n'))
  await throws(k.sdk.BuildError, /401|unauthori[sz]ed|credential/i, () => build(k, from(k).t.fromImage(env.CONF_PRIVATE_IMAGE, { username: 'ada', password: 'wrong' }), alias('denied')))
  await throws(k.sdk.BuildError, /no\/such/, () => build(k, from(k).t.fromImage(image.split('/')[0] + '/no/such:1'), alias('none')))
})

test('template/from a Dockerfile', async (k) => {
  const { t } = from(k, { 'src/main.py': 'print("hello")' })
  const name = alias('dockerfile')
  await build(k, t.fromDockerfile(`FROM ${image}\nWORKDIR /srv/work\nENV GREETING=hello OTHER=two\nARG UNUSED=1\nCOPY src/main.py ./main.py\nRUN echo "$GREETING" > greeting && \\\n    echo "$OTHER" >> greeting\nUSER user\n`), name)
  await within(k, name, async (s) => {
    assert.equal(await s.files.read('/srv/work/greeting'), 'hello\ntwo\n')
    assert.equal((await s.commands.run('python3 /srv/work/main.py')).stdout, 'hello\n')
  })
})

test('template/named images', async (k) => {
  const t = () => from(k).t
  const file = (b) => k.sdk.Template.toDockerfile(b)
  assert.match(file(t().fromPythonImage('3.12')), /^FROM python:3\.12/m)
  assert.match(file(t().fromNodeImage('20')), /^FROM node:20/m)
  assert.match(file(t().fromBunImage('1')), /^FROM oven\/bun:1/m)
  assert.match(file(t().fromUbuntuImage('22.04')), /^FROM ubuntu:22\.04/m)
  assert.match(file(t().fromDebianImage('stable')), /^FROM debian:stable/m)
  assert.match(file(t().fromBaseImage()), /^FROM e2bdev\/base/m)
  if (k.at('2.51')) {
    assert.match(file(t().fromFedoraImage('42')), /fedora:42/)
    assert.match(file(t().fromAlpineImage('3.20')), /alpine:3\.20/)
    assert.match(file(t().fromArchImage('latest')), /archlinux/)
  }
  assert.match(JSON.stringify(JSON.parse(await k.sdk.Template.toJSON(t().fromImage('debian:12').runCmd('true')))), /debian:12/)
  // Where no registry is reachable, the build says which image it could not get.
  await throws(k.sdk.BuildError, /python/, () => build(k, t().fromPythonImage('3.12'), alias('python')))
})

test('template/registries of clouds', async (k) => {
  const aws = await mute(() => from(k).t.fromAWSRegistry('123456789012.dkr.ecr.us-west-2.amazonaws.com/app:1', { accessKeyId: 'AKIA', secretAccessKey: 's', region: 'us-west-2' }))
  await refused(['Template.fromAWSRegistry', ...['accessKeyId', 'secretAccessKey', 'region'].map((f) => `Template.fromAWSRegistry:${f}`)], 'no exchange of AWS credentials: give user name and password', /aws|registry/i, () => build(k, aws, alias('aws')), k.sdk.BuildError)
  const gcp = from(k).t.fromGCPRegistry(env.CONF_PRIVATE_IMAGE, { serviceAccountJSON: { type: 'service_account' } })
  await throws(k.sdk.BuildError, /./, () => build(k, gcp, alias('gcp')))
})

test('template/packages need a network', async (k) => {
  const none = async (what, b, pattern) => {
    const logs = []
    const e = await throws(k.sdk.BuildError, /./, () => build(k, b, alias('net'), { onBuildLogs: (l) => logs.push(l.message) }))
    assert.match(e.message + logs.join('\n'), pattern, what)
  }
  const t = () => from(k).t.fromTemplate(k.template)
  await Promise.all([
    none('apt', t().aptInstall(['no-such-package'], { noInstallRecommends: true, ...(k.at('2.51') ? { fixMissing: true } : {}) }), /apt-get/),
    none('pip', t().pipInstall(['numpy'], { g: false }), /pip/),
    none('npm', t().npmInstall('lodash', { g: true, dev: true }), /npm/),
    none('bun', t().bunInstall('lodash', { g: true, dev: true }), /bun/),
  ])
  limited(['Template.aptInstall', 'Template.pipInstall', 'Template.npmInstall', 'Template.bunInstall'], 'the command is run; without a way out for builds, which is the default, it finds no packages and the build fails')
})

test('template/servers and containers of E2B', async (k) => {
  const t = () => from(k).t.fromTemplate(k.template)
  await refused('Template.addMcpServer', 'no template mcp-gateway', /mcp/i, async () => t().addMcpServer('exa'))
  await refused('Template.betaDevContainerPrebuild', 'no template devcontainer', /devcontainer/i, async () => t().betaDevContainerPrebuild('/x'))
  await refused('Template.betaSetDevContainerStart', 'no template devcontainer', /devcontainer/i, async () => t().betaSetDevContainerStart('/x'))
})

test('template/a step that fails', async (k) => {
  const logs = []
  const e = await throws(k.sdk.BuildError, /3|exit/i, () => build(k, from(k).t.fromTemplate(k.template).runCmd('echo so far; echo broken >&2; exit 3'), alias('broken'), { onBuildLogs: (l) => logs.push(l.message) }))
  assert.ok(e)
  assert.match(logs.join('\n'), /so far/)
  assert.match(logs.join('\n'), /broken/)
  await throws(k.sdk.BuildError, /no-such-template/, () => build(k, from(k).t.fromTemplate('no-such-template'), alias('broken')))
})

test('template/in the background', async (k) => {
  const opts = { cpuCount: 1, memoryMB: 128, onBuildLogs: k.sdk.defaultBuildLogger({ minLevel: 'error' }), skipCache: true, ...(k.at('2.51') ? { tags: ['bg'], minFreeDiskMb: 1 } : { apiKey: env.E2B_API_KEY, domain: env.E2B_DOMAIN }) }
  const info = await start(k, from(k).t.fromTemplate(k.template).skipCache().runCmd('echo working; sleep 0.5'), alias('background'), opts)
  const first = await k.sdk.Template.getBuildStatus(info, { logsOffset: 0, ...(k.at('2.51') ? {} : { apiKey: env.E2B_API_KEY, domain: env.E2B_DOMAIN }) })
  assert.ok(['building', 'waiting', 'ready'].includes(first.status), first.status)
  const done = await eventually('it is ready', async () => { const s = await k.sdk.Template.getBuildStatus(info); return s.status === 'ready' && s }, 30_000)
  assert.equal(done.templateID, info.templateId)
  assert.equal(done.buildID, info.buildId)
  const rest = await k.sdk.Template.getBuildStatus(info, { logsOffset: 1 })
  assert.ok(rest.logEntries.length < done.logEntries.length || done.logEntries.length === 0, 'the offset skips')
  if (k.at('2.51')) {
    assert.match(done.logEntries.map((l) => l.message).join('\n'), /working/)
    await k.sdk.Template.buildInBackground(from(k).t.fromTemplate(k.template), { alias: alias('old-way') })
    await k.sdk.Template.build(from(k).t.fromTemplate(k.template), { alias: alias('old-way') })
  }
  await throws(k.sdk.BuildError, /./, () => k.sdk.Template.getBuildStatus({ templateId: info.templateId, buildId: '00000000-0000-0000-0000-000000000000' }))
})

test('template/two build one alias', async (k) => {
  const name = alias('race')
  await Promise.all([1, 2, 3].map((i) => build(k, from(k).t.fromTemplate(k.template).runCmd(`echo ${i} > /home/user/who; sleep 0.2`), name)))
  await within(k, name, async (s) => assert.match(await s.files.read('/home/user/who'), /^[123]\n$/))
})

test('template/names and tags', async (k) => {
  const { Template } = k.sdk
  const name = alias('tagged')
  assert.equal(await Template.exists(name), false)
  const info = await Template.build(from(k).t.fromTemplate(k.template).runCmd('echo one > /home/user/v'), `${name}:v1`, { tags: ['stable'] })
  assert.deepEqual([...info.tags].sort(), ['stable', 'v1'])
  assert.equal(await Template.exists(name), true)
  assert.equal(await Template.aliasExists(name), true)
  const two = await Template.build(from(k).t.fromTemplate(k.template).runCmd('echo two > /home/user/v'), `${name}:v2`)
  assert.equal(two.templateId, info.templateId)
  const given = await Template.assignTags(`${name}:v2`, ['latest', 'next'])
  assert.equal(given.buildId, two.buildId)
  assert.deepEqual([...given.tags].sort(), ['latest', 'next'])
  await Template.assignTags(`${name}:v1`, 'old')
  const tags = Object.fromEntries((await Template.getTags(info.templateId)).map((x) => { assert.ok(x.createdAt instanceof Date); return [x.tag, x.buildId] }))
  assert.equal(tags.v1, info.buildId)
  assert.equal(tags.stable, info.buildId)
  assert.equal(tags.old, info.buildId)
  assert.equal(tags.v2, two.buildId)
  assert.equal(tags.next, two.buildId)
  for (const [tagged, want] of [['v1', 'one\n'], ['stable', 'one\n'], ['v2', 'two\n'], ['next', 'two\n']]) {
    await within(k, `${name}:${tagged}`, async (s) => assert.equal(await s.files.read('/home/user/v'), want, tagged))
  }
  await Template.removeTags(name, ['next', 'old'])
  await Template.removeTags(name, 'stable')
  const left = (await Template.getTags(name)).map((x) => x.tag)
  assert.ok(!left.includes('next') && !left.includes('stable') && left.includes('v1'), left.join())
  await throws(k.sdk.SandboxError, /next|not found|404/i, () => k.sdk.Sandbox.create(`${name}:next`))
  await throws(Error, /./, () => Template.assignTags(`${name}:none`, 'x'))
  await sleep(0)
}, (k) => k.at('2.51'))

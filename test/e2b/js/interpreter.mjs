import { assert, eventually, note, refused, test, throws } from './harness.mjs'

let box
// A create is refused as busy when kernels start slowly, as on a loaded machine; it may be tried again.
const make = (k) => k.ci.Sandbox.create({ timeoutMs: 1_200_000, requestTimeoutMs: 150_000 })
const interpreter = async (k) => (box ??= await make(k).catch(() => make(k)).then((s) => { k.made.push(s.sandboxId); return s }))
const record = (k, x) => { k.patch('Execution', Object.getPrototypeOf(x)); return x }
const run = async (k, s, code, opts) => record(k, await s.runCode(code, opts))

test('interpreter/text, state and count', async (k) => {
  const s = await interpreter(k)
  const a = await run(k, s, 'x = 20\nx + 1')
  assert.equal(a.text, '21')
  assert.equal(a.error, undefined)
  assert.equal(a.results.length, 1)
  assert.equal(a.results[0].isMainResult, true)
  const b = await run(k, s, 'x += 1; print("hi"); import sys; print("oops", file=sys.stderr); x')
  assert.equal(b.text, '21')
  assert.deepEqual([b.logs.stdout.join(''), b.logs.stderr.join('')], ['hi\n', 'oops\n'])
  assert.equal(b.executionCount, a.executionCount + 1)
  assert.equal((await run(k, s, 'y = 1')).text, undefined)
  assert.deepEqual(Object.keys(b.toJSON()).sort(), ['error', 'logs', 'results'])
  assert.equal((await run(k, s, 'import os; os.getcwd()')).text, '/home/user')
  assert.deepEqual((await run(k, s, '!echo shell; whoami')).logs.stdout.join('').split(/\s+/), ['shell', 'user', ''])
})

test('interpreter/callbacks and envs', async (k) => {
  const s = await interpreter(k)
  const got = { out: [], err: [], results: [], errors: [] }
  await s.runCode('import os, sys\nprint(os.environ["SECRET"])\nprint("e", file=sys.stderr)\ndisplay("d")\n1/0', {
    envs: { SECRET: 'shown' }, onStdout: (m) => { got.out.push(m) }, onStderr: (m) => got.err.push(m), onResult: (r) => got.results.push(r), onError: (e) => got.errors.push(e), timeoutMs: 30_000, requestTimeoutMs: 30_000,
  })
  assert.equal(got.out.map((m) => m.line).join(''), 'shown\n')
  assert.equal(got.out[0].error, false)
  assert.equal(got.err[0].error, true)
  assert.match(got.out[0].toString(), /./)
  note('OutputMessage.toString') // the class has no value that could be watched
  assert.ok(got.out[0].timestamp > 1e15, 'a time')
  assert.equal(got.results.length, 1)
  assert.equal(got.errors[0].name, 'ZeroDivisionError')
  assert.equal((await run(k, s, 'os.environ.get("SECRET")')).text, undefined, 'variables last for one execution')
})

test('interpreter/errors', async (k) => {
  const s = await interpreter(k)
  const e = await run(k, s, 'def f():\n    raise ValueError("why")\nf()')
  assert.equal(e.error.name, 'ValueError')
  assert.equal(e.error.value, 'why')
  assert.match(e.error.traceback, /ValueError.*why/s)
  const syntax = await run(k, s, 'def (')
  assert.equal(syntax.error.name, 'SyntaxError')
  assert.equal((await run(k, s, '40 + 2')).text, '42', 'the kernel goes on')
  const exit = await run(k, s, 'import os; os._exit(3)')
  assert.ok(exit.error, 'a dead kernel is an error')
  assert.equal((await run(k, s, '"again"')).text, 'again')
  await throws(k.ci.TimeoutError, /./, () => s.runCode('import time; time.sleep(20)', { timeoutMs: 700 }))
  assert.equal((await run(k, s, '"after"', { timeoutMs: 15_000 })).text, 'after', 'what timed out was interrupted')
})

test('interpreter/MIME results', async (k) => {
  const s = await interpreter(k)
  const r = (await run(k, s, `
from IPython.display import HTML, JSON, Markdown, SVG, Latex, Javascript, Image, display
import base64
png = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
display(HTML("<b>h</b>"), JSON({"a": 1}), Markdown("*m*"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"), Latex("$x$"), Javascript("1"), Image(png, format="png"), Image(b"jpeg", format="jpeg"))
display({"application/pdf": "JVBERg==", "application/x-own": "own"}, raw=True)
{"k": "v"}`)).results
  for (const x of r) k.patch('Result', Object.getPrototypeOf(x))
  const all = r.flatMap((x) => x.formats())
  for (const f of ['html', 'json', 'markdown', 'svg', 'latex', 'javascript', 'png', 'jpeg', 'pdf']) assert.ok(all.includes(f), `${f} of ${all}`)
  const by = (f) => r.find((x) => x[f] !== undefined)[f]
  assert.equal(by('html'), '<b>h</b>')
  assert.deepEqual(by('json'), { a: 1 })
  assert.equal(by('markdown'), '*m*')
  assert.match(by('png'), /^iVBOR/)
  assert.match(by('svg'), /^<svg/)
  assert.equal(by('pdf'), 'JVBERg==')
  assert.ok(r.some((x) => JSON.stringify(x.raw.extra ?? null).includes('application/x-own')), 'other types')
  assert.equal(r.at(-1).text, "{'k': 'v'}")
  assert.equal(r.at(-1).isMainResult, true)
  assert.equal(r.filter((x) => x.isMainResult).length, 1)
  assert.ok(r.at(-1).toJSON())
})

test('interpreter/charts and data frames', async (k) => {
  const s = await interpreter(k)
  const one = async (code) => (await run(k, s, code)).results.at(-1)
  const frame = await one('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})')
  assert.deepEqual(frame.data, { a: [1, 2], b: ['x', 'y'] })
  assert.match(frame.html, /<table/)
  const line = await one('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [2, 4, 8], label="growth")\nplt.title("T"); plt.xlabel("time (s)"); plt.ylabel("n")\nplt.show()')
  assert.match(line.png, /^iVBOR/)
  assert.equal(line.chart.type, 'line')
  assert.equal(line.chart.title, 'T')
  assert.equal(line.chart.x_label, 'time (s)')
  assert.equal(line.chart.elements[0].label, 'growth')
  assert.deepEqual(line.chart.elements[0].points, [[1, 2], [2, 4], [3, 8]])
  const bar = await one('plt.bar(["p", "q"], [3, 5]); plt.show()')
  assert.equal(bar.chart.type, 'bar')
  assert.deepEqual(bar.chart.elements.map((e) => [e.label, Number(e.value)]), [['p', 3], ['q', 5]])
  assert.equal((await one('plt.scatter([1], [2]); plt.show()')).chart.type, 'scatter')
  assert.equal((await one('plt.pie([1, 3], labels=["u", "v"]); plt.show()')).chart.type, 'pie')
  assert.equal((await one('plt.boxplot([[1, 2, 3, 4, 100]]); plt.show()')).chart.type, 'box_and_whisker')
  assert.equal((await one('f, a = plt.subplots(1, 2); a[0].plot([1], [1]); a[1].bar(["x"], [1]); plt.show()')).chart.type, 'superchart')
})

test('interpreter/contexts', async (k) => {
  const s = await interpreter(k)
  await s.runCode('where = "default"')
  const c = await s.createCodeContext({ cwd: '/tmp', language: 'python', requestTimeoutMs: 150_000 })
  assert.ok(c.id)
  assert.equal(c.language, 'python')
  assert.equal(c.cwd, '/tmp')
  assert.equal((await run(k, s, 'import os; where = "other"; os.getcwd()', { context: c })).text, '/tmp')
  assert.equal((await run(k, s, 'where')).text, 'default')
  assert.equal((await run(k, s, 'where', { context: c })).text, 'other')
  assert.ok((await s.listCodeContexts()).some((x) => x.id === c.id))
  await s.restartCodeContext(c)
  assert.equal((await run(k, s, 'where', { context: c })).error.name, 'NameError', 'a restart forgets')
  assert.equal((await run(k, s, 'os', { context: c })).error.name, 'NameError')
  await s.restartCodeContext(c.id)
  await s.removeCodeContext(c)
  assert.ok(!(await s.listCodeContexts()).some((x) => x.id === c.id))
  await throws(k.ci.NotFoundError, /./, () => s.runCode('1', { context: c }))
  await throws(k.ci.NotFoundError, /./, () => s.removeCodeContext(c.id))
  await throws(k.ci.InvalidArgumentError, /./, () => s.runCode('1', { context: c, language: 'python' }))
})

test('interpreter/languages', async (k) => {
  const s = await interpreter(k)
  assert.equal((await run(k, s, '1 + 1', { language: 'python' })).text, '2')
  assert.equal((await run(k, s, 'X=5; echo $((X+1))', { language: 'bash' })).logs.stdout.join(''), '6\n')
  await refused('Sandbox.runCode:language', 'the template has kernels for python and bash; others are refused', /400/, () => s.runCode('1', { language: 'javascript' }), k.ci.SandboxError)
  await eventually('it is there', () => s.isRunning())
})

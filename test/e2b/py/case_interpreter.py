from harness import case, eq, eventually, match, refused, throws, w

box = None


async def interpreter(k):
    global box
    if box is None:
        try:
            box = await w(k.Interpreter.create(timeout=1200, request_timeout=150))
        except Exception:  # busy, when kernels start slowly, as on a loaded machine
            box = await w(k.Interpreter.create(timeout=1200, request_timeout=150))
        k.made.append(box.sandbox_id)
    return box


@case("interpreter/text, state and count")
async def _(k):
    s = await interpreter(k)
    a = await w(s.run_code("x = 20\nx + 1"))
    eq((a.text, a.error, len(a.results), a.results[0].is_main_result), ("21", None, 1, True))
    b = await w(s.run_code('x += 1; print("hi"); import sys; print("oops", file=sys.stderr); x'))
    eq((b.text, "".join(b.logs.stdout), "".join(b.logs.stderr)), ("21", "hi\n", "oops\n"))
    eq(b.execution_count, a.execution_count + 1)
    match(b.to_json(), '"results"')
    match(b.logs.to_json(), "hi")
    eq((await w(s.run_code("y = 1"))).text, None)
    eq((await w(s.run_code("import os; os.getcwd()"))).text, "/home/user")
    eq("".join((await w(s.run_code("!echo shell; whoami"))).logs.stdout).split(), ["shell", "user"])


@case("interpreter/callbacks and envs")
async def _(k):
    s = await interpreter(k)
    out, err, results, errors = [], [], [], []
    code = 'import os, sys\nprint(os.environ["SECRET"])\nprint("e", file=sys.stderr)\ndisplay("d")\n1/0'
    await w(s.run_code(code, envs={"SECRET": "shown"}, on_stdout=out.append, on_stderr=err.append, on_result=results.append, on_error=errors.append, timeout=30, request_timeout=30))
    eq("".join(m.line for m in out), "shown\n")
    assert not out[0].error and err[0].error and out[0].timestamp > 1e15 and str(out[0])
    eq((len(results), errors[0].name), (1, "ZeroDivisionError"))
    match(errors[0].to_json(), "ZeroDivisionError")
    eq((await w(s.run_code('os.environ.get("SECRET")'))).text, None, "variables last for one execution")


@case("interpreter/errors")
async def _(k):
    s = await interpreter(k)
    e = (await w(s.run_code('def f():\n    raise ValueError("why")\nf()'))).error
    eq((e.name, e.value), ("ValueError", "why"))
    match(e.traceback, "ValueError.*why")
    eq((await w(s.run_code("def ("))).error.name, "SyntaxError")
    eq((await w(s.run_code("40 + 2"))).text, "42", "the kernel goes on")
    assert (await w(s.run_code("import os; os._exit(3)"))).error, "a dead kernel is an error"
    eq((await w(s.run_code('"again"'))).text, "again")
    await throws(k.sdk.TimeoutException, ".", lambda: s.run_code("import time; time.sleep(20)", timeout=0.7))
    eq((await w(s.run_code('"after"', timeout=15))).text, "after", "what timed out was interrupted")


@case("interpreter/MIME results")
async def _(k):
    s = await interpreter(k)
    r = (await w(s.run_code("""
from IPython.display import HTML, JSON, Markdown, SVG, Latex, Javascript, Image, display
import base64
png = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
display(HTML("<b>h</b>"), JSON({"a": 1}), Markdown("*m*"), SVG("<svg xmlns='http://www.w3.org/2000/svg'/>"), Latex("$x$"), Javascript("1"), Image(png, format="png"), Image(b"jpeg", format="jpeg"))
display({"application/pdf": "JVBERg==", "application/x-own": "own"}, raw=True)
{"k": "v"}"""))).results
    every = {f for x in r for f in x.formats()}
    assert {"html", "json", "markdown", "svg", "latex", "javascript", "png", "jpeg", "pdf"} <= every, every
    by = {f: x[f] for x in r for f in ("html", "json", "markdown", "png", "pdf", "svg") if x[f]}
    eq((by["html"], by["json"], by["markdown"], by["pdf"]), ("<b>h</b>", {"a": 1}, "*m*", "JVBERg=="))
    match(by["png"], "^iVBOR")
    match(by["svg"], "^<svg")
    eq(next(x.extra for x in r if x.extra), {"application/x-own": "own"})
    eq((r[-1].text, r[-1].is_main_result, sum(x.is_main_result for x in r)), ("{'k': 'v'}", True, 1))


@case("interpreter/charts and data frames")
async def _(k):
    s = await interpreter(k)

    async def one(code):
        x = await w(s.run_code(code))
        assert x.results, x.error and x.error.traceback
        return x.results[-1]

    frame = await one('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", "y"]})')
    eq(frame.data, {"a": [1, 2], "b": ["x", "y"]})
    match(frame.html, "<table")
    line = await one('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [2, 4, 8], label="growth")\nplt.title("T"); plt.xlabel("time (s)"); plt.ylabel("n")\nplt.show()')
    match(line.png, "^iVBOR")
    c = line.chart
    eq((c.type.value, c.title, c.x_label, c.x_unit, c.elements[0].label), ("line", "T", "time (s)", "s", "growth"))
    eq([tuple(p) for p in c.elements[0].points], [(1, 2), (2, 4), (3, 8)])
    assert c.to_dict() and c.x_scale.value == "linear"
    bar = (await one('plt.bar(["p", "q"], [3, 5]); plt.show()')).chart
    eq((bar.type.value, [(e.label, float(e.value)) for e in bar.elements]), ("bar", [("p", 3.0), ("q", 5.0)]))
    for code, kind in (("plt.scatter([1], [2])", "scatter"), ('plt.pie([1, 3], labels=["u", "v"])', "pie"), ("plt.boxplot([[1, 2, 3, 4, 100]])", "box_and_whisker"),
                       ('f, a = plt.subplots(1, 2); a[0].plot([1], [1]); a[1].bar(["x"], [1])', "superchart")):
        eq((await one(f"{code}; plt.show()")).chart.type.value, kind)


@case("interpreter/contexts")
async def _(k):
    s = await interpreter(k)
    await w(s.run_code('where = "default"'))
    c = await w(s.create_code_context(cwd="/tmp", language="python", request_timeout=150))
    eq((bool(c.id), c.language, c.cwd), (True, "python", "/tmp"))
    eq((await w(s.run_code('import os; where = "other"; os.getcwd()', context=c))).text, "/tmp")
    eq(((await w(s.run_code("where"))).text, (await w(s.run_code("where", context=c))).text), ("default", "other"))
    assert any(x.id == c.id for x in await w(s.list_code_contexts()))
    await w(s.restart_code_context(c))
    eq((await w(s.run_code("where", context=c))).error.name, "NameError", "a restart forgets")
    await w(s.restart_code_context(c.id))
    await w(s.remove_code_context(c))
    assert not any(x.id == c.id for x in await w(s.list_code_contexts()))
    await throws(k.sdk.NotFoundException, ".", lambda: s.run_code("1", context=c))
    await throws(k.sdk.NotFoundException, ".", lambda: s.remove_code_context(c.id))
    await throws(Exception, ".", lambda: s.run_code("1", context=c, language="python"))


@case("interpreter/languages")
async def _(k):
    s = await interpreter(k)
    eq((await w(s.run_code("1 + 1", language="python"))).text, "2")
    eq("".join((await w(s.run_code("X=5; echo $((X+1))", language="bash"))).logs.stdout), "6\n")
    await refused("Sandbox.runCode:language", "the template has kernels for python and bash; others are refused", "400|javascript", lambda: s.run_code("1", language="javascript"), k.sdk.SandboxException)
    await eventually("it is there", lambda: s.is_running())

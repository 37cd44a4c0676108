import asyncio
import time

from harness import case, eq, eventually, match, throws, w


@case("commands/run, output and exit codes")
async def _(k):
    c = k.sbx.commands
    r = await w(c.run("echo out; echo err >&2"))
    eq((r.exit_code, r.stdout, r.stderr), (0, "out\n", "err\n"))
    e = await throws(k.sdk.CommandExitException, ".", lambda: c.run("echo before; echo why >&2; exit 7"))
    eq((e.exit_code, e.stdout, e.stderr), (7, "before\n", "why\n"))
    e = await throws(k.sdk.CommandExitException, ".", lambda: c.run("kill -9 $$"))
    assert e.exit_code != 0
    e = await throws(k.sdk.CommandExitException, ".", lambda: c.run("no-such-program"))
    eq(e.exit_code, 127)
    eq((await w(c.run("cat"))).stdout, "")


@case("commands/run, cwd, envs and user")
async def _(k):
    c = k.sbx.commands
    eq((await w(c.run("pwd", cwd="/usr/lib"))).stdout, "/usr/lib\n")
    eq((await w(c.run('echo "$A|$B"', envs={"A": "it's", "B": "line\nend"}))).stdout, "it's|line\nend\n")
    eq((await w(c.run("id -un; echo $HOME; pwd", user="root"))).stdout, "root\n/root\n/root\n")
    eq((await w(c.run("id -un; id -u; pwd", user="user"))).stdout, "user\n1000\n/home/user\n")
    eq((await w(c.run("sudo id -un"))).stdout, "root\n")
    await throws(k.sdk.InvalidArgumentException, "no-such-dir", lambda: c.run("pwd", cwd="/no-such-dir"))
    await throws(Exception, "nobody-here|user", lambda: c.run("id", user="nobody-here"))


@case("commands/run, callbacks come while it runs")
async def _(k):
    got, at = [], []
    r = await w(k.sbx.commands.run("for i in 1 2 3; do echo o$i; echo e$i >&2; sleep 0.5; done",
                                   on_stdout=lambda d: (got.append(d), at.append(time.monotonic())) and None, on_stderr=lambda d: got.append(d)))
    eq(r.stdout, "o1\no2\no3\n")
    eq(sorted("".join(got).split()), ["e1", "e2", "e3", "o1", "o2", "o3"])
    assert at[-1] - at[0] >= 0.4, "not all at the end"


@case("commands/run, time-out")
async def _(k):
    c = k.sbx.commands
    begun = time.monotonic()
    await throws(k.sdk.TimeoutException, ".", lambda: c.run("echo first; sleep 6644 & sleep 6644", timeout=1))
    assert time.monotonic() - begun < 30
    await eventually("nothing of it goes on", lambda: stopped(c, "sleep 664[4]"))
    eq((await w(c.run("sleep 1.5; echo done", timeout=0))).stdout, "done\n")


async def stopped(c, pattern):
    return (await w(c.run(f"pgrep -c -f '{pattern}' || true"))).stdout.strip() == "0"


@case("commands/run, much output and odd bytes")
async def _(k):
    c = k.sbx.commands
    eq(len((await w(c.run('head -c 3000000 /dev/zero | tr "\\0" x'))).stdout), 3_000_000)
    eq((await w(c.run("printf 'ä€😀'"))).stdout, "ä€😀")
    eq((await w(c.run(f"printf %s {'y' * 100_000} | wc -c"))).stdout.strip(), "100000")


@case("commands/background, wait, list and kill")
async def _(k):
    c = k.sbx.commands
    h = await w(c.run("echo begun; sleep 0.3; exit 3", background=True))
    assert h.pid > 0
    if k.is_async:
        eq(h.exit_code, None)
    e = await throws(k.sdk.CommandExitException, ".", lambda: h.wait())
    eq((e.exit_code, e.stdout), (3, "begun\n"))
    if k.is_async:
        eq((h.exit_code, h.stdout, h.stderr), (3, "begun\n", ""))
        assert h.error is None or isinstance(h.error, str)
    long = await w(c.run("sleep 600", background=True, cwd="/tmp", envs={"MARK": "yes"}, timeout=0))
    entry = next(p for p in await w(c.list()) if p.pid == long.pid)
    eq((entry.cmd, entry.args, entry.envs["MARK"], entry.cwd), ("/bin/bash", ["-l", "-c", "sleep 600"], "yes", "/tmp"))
    eq(await w(c.kill(long.pid)), True)
    await throws(k.sdk.CommandExitException, ".", lambda: long.wait())
    eq(await w(c.kill(long.pid)), False)
    mine = await w(c.run("sleep 600", background=True))
    eq(await w(mine.kill()), True)
    await throws(k.sdk.CommandExitException, ".", lambda: mine.wait())
    eq(await w(mine.kill()), False)
    eq(await w(c.kill(999_999)), False)


@case("commands/connect and disconnect")
async def _(k):
    c = k.sbx.commands
    h = await w(c.run("for i in $(seq 1 30); do echo tick $i; sleep 0.1; done; echo the end", background=True))
    await w(h.disconnect())
    got = []
    if k.is_async:
        again = await c.connect(h.pid, on_stdout=got.append, on_stderr=lambda _: None, timeout=30)
        r = await again.wait()
    else:
        again = c.connect(h.pid, timeout=30)
        r = again.wait(on_stdout=got.append, on_stderr=lambda _: None, on_pty=lambda _: None)
    eq((again.pid, r.exit_code), (h.pid, 0))
    match("".join(got), "tick 30\nthe end\n$")
    await throws(k.sdk.NotFoundException, ".", lambda: c.connect(999_999))


@case("commands/stdin")
async def _(k):
    c = k.sbx.commands
    h = await w(c.run('while read -r line; do echo "<$line>"; [ "$line" = quit ] && exit 4; done', background=True, stdin=True))
    await w(c.send_stdin(h.pid, "one\n"))
    await w(c.send_stdin(h.pid, "quit\n"))
    e = await throws(k.sdk.CommandExitException, ".", lambda: h.wait())
    eq((e.exit_code, e.stdout), (4, "<one>\n<quit>\n"))
    await throws(k.sdk.NotFoundException, ".", lambda: c.send_stdin(999_999, "x"))


@case("commands/stdin is closed, and streamed", lambda k: k.new)
async def _(k):
    c = k.sbx.commands
    h = await w(c.run("cat; echo end", background=True, stdin=True))
    await w(h.send_stdin(b"bytes\n"))
    await w(h.close_stdin())
    eq((await w(h.wait())).stdout, "bytes\nend\n")
    other = await w(c.run("wc -c", background=True, stdin=True))
    if k.is_async:
        async with c.stream_input(other.pid, timeout=30) as s:
            for _ in range(10):
                await s.send("x" * 10_000)
    else:
        c.stream_input(other.pid, ("x" * 10_000 for _ in range(10)), timeout=30)
    await w(c.close_stdin(other.pid))
    eq((await w(other.wait())).stdout.strip(), "100000")
    without = await w(c.run("sleep 5", background=True))
    await throws(k.sdk.SandboxException, "stdin", lambda: c.send_stdin(without.pid, "x"))
    await w(without.kill())


@case("commands/output that nobody keeps", lambda k: k.new)
async def _(k):
    c = k.sbx.commands
    got = []
    r = await w(c.run("echo shown", on_stdout=got.append, retain_output=False))
    eq(("".join(got), r.stdout), ("shown\n", None))
    h = await w(c.run("sleep 0.5; echo late", background=True))
    await w(h.disconnect())
    again = await w(c.connect(h.pid, retain_output=False))
    eq((await w(again.wait())).stdout, None)


@case("commands/many at once", lambda k: k.is_async)
async def _(k):
    all = await asyncio.gather(*(k.sbx.commands.run(f"echo {i}") for i in range(30)))
    eq([int(r.stdout) for r in all], list(range(30)))


@case("commands/a killed sandbox")
async def _(k):
    s = await k.create()
    h = await w(s.commands.run("sleep 600", background=True, timeout=0))
    await w(s.kill())
    await throws(Exception, ".", lambda: h.wait())

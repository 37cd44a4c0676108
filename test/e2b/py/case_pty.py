import asyncio
import threading

from harness import case, eq, eventually, match, throws, w


class Terminal:
    """What a terminal shows, of either SDK: the sync one must be read, by a thread of its own."""

    def __init__(self, k):
        self.k, self.text, self.end = k, "", None

    def data(self, b):
        self.text += b.decode(errors="replace")

    async def create(self, **opts):
        opts.setdefault("size", self.k.sdk.PtySize(rows=24, cols=80))
        return await self.follow(await w(self.k.sbx.pty.create(on_data=self.data, **opts) if self.k.is_async else self.k.sbx.pty.create(**opts)))

    async def connect(self, pid, **opts):
        return await self.follow(await w(self.k.sbx.pty.connect(pid, on_data=self.data, **opts) if self.k.is_async else self.k.sbx.pty.connect(pid, **opts)))

    async def follow(self, handle):
        self.handle = handle
        if not self.k.is_async:
            threading.Thread(target=self.read, daemon=True).start()
        return handle

    def read(self):
        try:
            self.handle.wait(on_pty=self.data)
        except Exception as e:
            self.end = e

    async def exit(self):
        if self.k.is_async:
            return await throws(self.k.sdk.CommandExitException, ".", self.handle.wait)
        await eventually("the end", lambda: self.end)
        assert isinstance(self.end, self.k.sdk.CommandExitException), self.end
        return self.end

    async def shows(self, pattern):
        import re

        try:
            await eventually(pattern, lambda: re.search(pattern, self.text))
        except AssertionError as e:
            raise AssertionError(f"{e}: {self.text!r}")


@case("pty/create, input, size and exit")
async def _(k):
    p, t = k.sbx.pty, Terminal(k)
    h = await t.create(size=k.sdk.PtySize(rows=33, cols=90), cwd="/usr", envs={"PTY_ENV": "set"}, user="user", timeout=60)
    assert h.pid > 0
    await w(p.send_stdin(h.pid, b"stty size; pwd; echo $PTY_ENV-$TERM; id -un; tty\n"))
    for pattern in ("33 90", "/usr\r\n", "set-xterm", "user\r\n", "/dev/pts/"):
        await t.shows(pattern)
    await w(p.resize(h.pid, k.sdk.PtySize(rows=40, cols=120)))
    await w(p.send_stdin(h.pid, b"stty size\n"))
    await t.shows("40 120")
    await w(p.send_stdin(h.pid, b"exit 5\n"))
    eq((await t.exit()).exit_code, 5)


@case("pty/kill")
async def _(k):
    p, t = k.sbx.pty, Terminal(k)
    h = await t.create()
    assert any(x.pid == h.pid for x in await w(k.sbx.commands.list()))
    eq(await w(p.kill(h.pid)), True)
    await t.exit()
    eq(await w(p.kill(h.pid)), False)
    await throws(k.sdk.NotFoundException, ".", lambda: p.send_stdin(999_999, b"x"))
    # The year-old SDK passes this one error on as it came.
    await throws(k.sdk.NotFoundException if k.new else Exception, ".", lambda: p.resize(999_999, k.sdk.PtySize(rows=1, cols=1)))


@case("pty/connect and streamed input", lambda k: k.new)
async def _(k):
    p, a, b = k.sbx.pty, Terminal(k), Terminal(k)
    h = await w(p.create(size=k.sdk.PtySize(rows=24, cols=80), on_data=a.data) if k.is_async else p.create(size=k.sdk.PtySize(rows=24, cols=80)))
    await w(h.disconnect())
    again = await b.connect(h.pid, timeout=60)
    eq(again.pid, h.pid)
    if k.is_async:
        s = p.stream_input(h.pid, timeout=30)
        await s.send(b"echo seen-$((1+1))\n")
        await s.close()
    else:
        p.stream_input(h.pid, iter([b"echo seen-$((1+1))\n"]), timeout=30)
    await b.shows("seen-2")
    match(b.text, "seen-2")
    await w(p.kill(h.pid))
    await asyncio.sleep(0)

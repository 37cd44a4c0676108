"""What users do, on an event loop; test_sync_scenarios.py is made of it for threads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dsec
from dsec import AsyncClient, AsyncSession, Chunk, Exited


async def test_results_tell_how_a_command_ended(async_session: AsyncSession) -> None:
    r = await async_session.exec("echo out; echo err >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr, r.ok) == (3, "out\n", "err\n", False)
    assert r.wall_time > 0 and r.peak_memory > 0
    with pytest.raises(dsec.CommandError, match="exit code 3: err") as failed:
        r.check()
    assert failed.value.result is r
    with pytest.raises(dsec.CommandError, match="SIGKILL"):
        await async_session.exec("kill -9 $$", check=True)


async def test_what_a_command_gets(async_session: AsyncSession) -> None:
    r = await async_session.exec(
        'printf "%s|" "$A" "$PWD" "$(cat)"', env={"A": "x y"}, cwd="/tmp", stdin=b"in\n\n"
    )
    assert r.stdout == "x y|/tmp|in|"
    assert (await async_session.exec("id -u", user="root")).stdout == "0\n"
    odd = b"\xff\xfe"
    assert (await async_session.exec(["printf", "%s", odd])).out.data == odd


async def test_a_time_out_kills_and_keeps_what_was_printed(async_session: AsyncSession) -> None:
    r = await async_session.exec("echo begun; sleep 100", timeout=0.3)
    assert r.timed_out and not r.ok and r.stdout == "begun\n"
    with pytest.raises(dsec.CommandError, match="timed out: begun"):
        r.check()


async def test_output_is_capped_as_head_and_tail(async_session: AsyncSession) -> None:
    r = await async_session.exec("seq 1 20000", max_output=1000)
    assert r.out.dropped == r.out.total - 1000 and len(r.out.data) == 1000
    assert r.stdout.startswith("1\n2\n") and r.stdout.endswith("20000\n")
    assert f"[{r.out.dropped} bytes dropped]" in r.stdout
    r = await async_session.exec("yes", max_output=1000, kill_on_output_limit=True)
    assert r.limit == "output"


async def test_callbacks_hear_what_comes(async_session: AsyncSession) -> None:
    heard: list[tuple[str, bytes]] = []
    r = await async_session.exec(
        "echo one; sleep 0.2; echo two >&2",
        on_stdout=lambda data: heard.append(("out", data)),
        on_stderr=lambda data: heard.append(("err", data)),
    )
    assert heard == [("out", b"one\n"), ("err", b"two\n")]
    assert (r.stdout, r.stderr) == ("one\n", "two\n")


async def test_a_process_is_followed_fed_and_signalled(async_session: AsyncSession) -> None:
    async with await async_session.start("while read x; do echo got $x; done", stdin=True) as p:
        assert p.pid > 0
        await p.write("a\n")
        events = p.events()
        async for event in events:
            assert isinstance(event, Chunk) and event.data == b"got a\n"
            break
        await p.write("b\n")
        await p.close_stdin()
        rest = [e async for e in p]
        assert b"".join(e.data for e in rest if isinstance(e, Chunk)) == b"got b\n"
        assert isinstance(rest[-1], Exited) and rest[-1].result.exit_code == 0
        assert (await p.wait()).stdout == "got a\ngot b\n"
    async with await async_session.start(["sleep", "100"]) as p:
        await p.signal("TERM")
        assert (await p.wait()).signal == "SIGTERM"
    async with await async_session.start(["sleep", "100"]) as p:
        pass
    assert not [o for o in await async_session.operations() if o.running]


async def test_background_and_shell(async_session: AsyncSession) -> None:
    p = await async_session.spawn("sleep 0.3; echo later")
    assert (await async_session.process(p.op_id).wait()).stdout == "later\n"
    async with async_session.shell("s") as shell:
        await shell.run("cd /tmp; f() { echo f$1; }; export X=1")
        assert (await shell.run("pwd; f 2; echo $X")).stdout.split() == ["/tmp", "f2", "1"]
        assert (await shell.run("sleep 100", timeout=0.2)).timed_out
        assert (await shell.run("echo fine")).stdout == "fine\n"


async def test_a_terminal(async_session: AsyncSession) -> None:
    async with await async_session.pty(rows=30, cols=90) as p:
        await p.write("stty size; exit\n")
        seen = b"".join([e.data async for e in p if isinstance(e, Chunk)])
    assert b"30 90" in seen
    async with await async_session.pty(["sh", "-c", "trap 'stty size; exit' WINCH; echo on; while :; do sleep 0.1; done"]) as p:
        seen = b""
        async for event in p:
            if isinstance(event, Chunk):
                seen += event.data
                if event.data.startswith(b"on"):
                    await p.resize(31, 91)
    assert b"31 91" in seen


async def test_one_op_id_is_one_execution(async_session: AsyncSession) -> None:
    for _ in range(3):
        r = await async_session.exec("echo x >> n; wc -l < n", op_id="once")
        assert r.stdout.strip() == "1"
    with pytest.raises(dsec.UserError) as clash:
        await async_session.exec("echo other", op_id="once")
    assert clash.value.reason == "idempotency_clash"


async def test_files(async_session: AsyncSession) -> None:
    f = async_session.files
    info = await f.write("d/ä b\n.txt", "hello", mode=0o600)
    assert (info.size, info.mode) == (5, 0o600)
    assert await f.read_text("/workspace/d/ä b\n.txt") == "hello"
    await f.write("d/ä b\n.txt", b" you", append=True)
    assert await f.read("d/ä b\n.txt") == b"hello you"
    odd = b"d/\xff"
    await f.write(odd, b"")
    assert await f.read(odd) == b"" and await f.exists(odd)
    assert sorted(os.fsencode(i.name) for i in await f.list("d")) == [b"\xc3\xa4 b\n.txt", b"\xff"]
    await f.mkdir("e/f")
    await f.move(odd, "e/f/moved")
    assert not await f.exists(odd)
    await f.symlink("f/moved", "e/link")
    await f.link("e/f/moved", "e/hard")
    assert (await f.stat("e/link", follow=False)).target == "f/moved"
    assert (await f.stat("e/hard")).links == 2
    await f.chmod("e/hard", 0o755)
    assert (await f.stat("e/f/moved")).mode == 0o755
    assert [i.path for i in await f.list("e", depth=3) if i.type == "file"] != []
    await f.remove("e", recursive=True)
    with pytest.raises(dsec.UserError) as gone:
        await f.read("e/hard")
    assert gone.value.reason == "not_found"
    with pytest.raises(dsec.UserError):
        await f.remove("nothing")


async def test_large_files_go_through(async_session: AsyncSession, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "in").write_bytes(data)
    await async_session.files.upload(tmp_path / "in", "big")
    await async_session.files.download("big", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 100_000

    assert (await async_session.files.write("pieces", pieces())).size == 300_000


async def test_trees(async_session: AsyncSession, tmp_path: Path) -> None:
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/sub/a").write_text("A")
    await async_session.files.upload_dir(tmp_path / "src", "tree")
    assert (await async_session.exec("cat tree/sub/a")).stdout == "A"
    await async_session.exec("echo B > tree/sub/b")
    await async_session.files.download_dir("tree", tmp_path / "dst")
    names = [p.name for p in (tmp_path / "dst").rglob("*") if p.is_file()]
    assert sorted(names) == ["a", "b"]


async def test_a_hostile_tree_stays_where_it_is_put(async_session: AsyncSession, tmp_path: Path) -> None:
    await async_session.exec("mkdir t; ln -s /etc t/out; ln -s ../../.. t/up", check=True)
    with pytest.raises(dsec.PolicyError):
        await async_session.files.download_dir("t", tmp_path / "dst")


async def test_watch(async_session: AsyncSession) -> None:
    await async_session.files.mkdir("w")
    p = await async_session.spawn("for i in $(seq 100); do touch w/new; rm -f w/new; sleep 0.1; done")
    async for change in async_session.files.watch("w"):
        assert change.path == "new"
        break
    await p.kill()


async def test_dial(async_session: AsyncSession) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True)\n"
        "c = s.accept()[0]; c.sendall(c.recv(100).upper())"
    )
    async with await async_session.start(["python3", "-c", server]) as p:
        async for _ in p:
            break
        async with await async_session.dial("localhost:8123") as c:
            await c.write(b"hello")
            assert await c.read() == b"HELLO"
            assert await c.read() == b""
    with pytest.raises(dsec.UserError):
        await async_session.dial("localhost:8124")


async def test_life(async_client: AsyncClient) -> None:
    async with async_client.create(job="life", labels={"a": "b"}, env={"E": "1"}, secrets={"S": "2"}, spec={"mem_limit": "64Mi"}) as s:
        info = await s.refresh()
        assert (info.phase, info.job, info.labels, info.env) == ("RUNNING", "life", {"a": "b"}, {"E": "1"})
        assert int(info.spec["mem_limit"]) == 64 << 20 and info.live and info.created is not None
        assert (await s.exec("echo $E$S")).stdout == "12\n"
        assert (await s.suspend()).phase == "SUSPENDED"
        assert (await s.resume()).phase == "RUNNING"
        await s.suspend()
        assert (await s.exec("echo thawed")).stdout == "thawed\n"
        await s.heartbeat()
        assert (await s.inspect()).box["state"] == "live"
        assert [i.id async for i in async_client.list(job="life", phases=["RUNNING"])] == [s.id]
        assert info.lease_id == async_client.lease_id
        assert [o.session_id for o in await async_client.stop(job="life", reason="done")] == [s.id]
        assert (await s.wait("COMPLETED")).reason == "done"
        with pytest.raises(dsec.UserError) as gone:
            await s.exec("true")
        assert gone.value.reason == "box_gone"
    with pytest.raises(dsec.UserError) as unknown:
        await async_client.session("s" + "0" * 25).refresh()
    assert (unknown.value.reason, unknown.value.retryable) == ("not_found", False)


async def test_deadlines(async_client: AsyncClient) -> None:
    async with async_client.create(lifetime=3600, at_deadline="suspend") as s:
        assert s.info is not None and s.info.deadline is not None and s.info.at_deadline == "suspend"
        first = s.info.deadline
        assert (await s.extend(60)).deadline == first  # which is no extension
        later = (await s.extend(7200)).deadline
        assert later is not None and 3500 < (later - first).total_seconds() < 3700
        assert (await s.set_deadline(None)).deadline is None
        soon = await s.set_deadline(1.5, then="stop")
        assert (soon.phase, soon.at_deadline) == ("RUNNING", "stop")
        assert "1.5s" in (await s.wait("COMPLETED", timeout=30)).reason
        for call in (s.extend, s.set_deadline):
            with pytest.raises(dsec.UserError):  # it has ended
                await call(60)
            with pytest.raises(dsec.UserError, match="time to come"):
                await call(0)
    with pytest.raises(dsec.UserError, match="lifetime"):
        await async_client.create(at_deadline="stop")


async def test_a_group_keeps_failures_apart(async_client: AsyncClient) -> None:
    async with async_client.create(count=4) as group:
        assert len(group) == 4 and not group.failures and len(set(group.ids)) == 4
        await group[1].stop()
        outcomes = await group.exec("hostname")
        assert [o.ok for o in outcomes] == [True, False, True, True]
        assert not outcomes[1].infrastructure
        with pytest.raises(dsec.UserError):
            outcomes[1].unwrap()

        async def work(s: AsyncSession) -> int:
            await s.files.write("f", s.id)
            return len(await s.files.read("f"))

        assert [o.value for o in await group.map(work, limit=2)] == [26, None, 26, 26]
        suspended = await group.suspend()
        assert [o.ok for o in suspended] == [True, False, True, True]
        assert all(o.ok for o in (await group.resume())[2:])
    assert [i.id async for i in async_client.list(lease_id=async_client.lease_id, phases=["RUNNING"])] == []


async def test_creates_that_cannot_be(async_client: AsyncClient) -> None:
    with pytest.raises(dsec.UserError, match="no-such"):
        await async_client.create("no-such")
    with pytest.raises(dsec.UserError, match="mem_limt"):
        await async_client.create(spec={"mem_limt": 1})
    with pytest.raises(dsec.DSecError) as full:
        await async_client.create(count=2, spec={"mem_limit": "100Ti"})
    assert full.value.error_class in ("limit", "user")


async def test_one_key_is_one_create(async_client: AsyncClient) -> None:
    key = "k-" + os.urandom(8).hex()
    a = await async_client.create(idempotency_key=key)
    async with a:
        b = await async_client.create(idempotency_key=key)
        assert a.id == b.id
        with pytest.raises(dsec.UserError) as clash:
            await async_client.create(idempotency_key=key, job="other")
        assert clash.value.reason == "idempotency_clash"


async def test_templates(async_client: AsyncClient) -> None:
    base = await async_client.templates.get("base")
    assert base.ref in [t.ref for t in await async_client.templates.list()]
    async with async_client.create(base.ref) as s:
        assert s.info is not None and s.info.template == base.ref

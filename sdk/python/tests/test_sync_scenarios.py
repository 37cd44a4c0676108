# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""What users do, in threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import dsec
from dsec import Client, Session, Chunk, Exited


def test_results_tell_how_a_command_ended(session: Session) -> None:
    r = session.exec("echo out; echo err >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr, r.ok) == (3, "out\n", "err\n", False)
    assert r.wall_time > 0 and r.peak_memory > 0
    with pytest.raises(dsec.CommandError, match="exit code 3: err") as failed:
        r.check()
    assert failed.value.result is r
    with pytest.raises(dsec.CommandError, match="SIGKILL"):
        session.exec("kill -9 $$", check=True)


def test_what_a_command_gets(session: Session) -> None:
    r = session.exec(
        'printf "%s|" "$A" "$PWD" "$(cat)"', env={"A": "x y"}, cwd="/tmp", stdin=b"in\n\n"
    )
    assert r.stdout == "x y|/tmp|in|"
    assert (session.exec("id -u", user="root")).stdout == "0\n"
    odd = b"\xff\xfe"
    assert (session.exec(["printf", "%s", odd])).out.data == odd


def test_a_time_out_kills_and_keeps_what_was_printed(session: Session) -> None:
    r = session.exec("echo begun; sleep 100", timeout=0.3)
    assert r.timed_out and not r.ok and r.stdout == "begun\n"
    with pytest.raises(dsec.CommandError, match="timed out: begun"):
        r.check()


def test_output_is_capped_as_head_and_tail(session: Session) -> None:
    r = session.exec("seq 1 20000", max_output=1000)
    assert r.out.dropped == r.out.total - 1000 and len(r.out.data) == 1000
    assert r.stdout.startswith("1\n2\n") and r.stdout.endswith("20000\n")
    assert f"[{r.out.dropped} bytes dropped]" in r.stdout
    r = session.exec("yes", max_output=1000, kill_on_output_limit=True)
    assert r.limit == "output"


def test_callbacks_hear_what_comes(session: Session) -> None:
    heard: list[tuple[str, bytes]] = []
    r = session.exec(
        "echo one; sleep 0.2; echo two >&2",
        on_stdout=lambda data: heard.append(("out", data)),
        on_stderr=lambda data: heard.append(("err", data)),
    )
    assert heard == [("out", b"one\n"), ("err", b"two\n")]
    assert (r.stdout, r.stderr) == ("one\n", "two\n")


def test_a_process_is_followed_fed_and_signalled(session: Session) -> None:
    with session.start("while read x; do echo got $x; done", stdin=True) as p:
        assert p.pid > 0
        p.write("a\n")
        events = p.events()
        for event in events:
            assert isinstance(event, Chunk) and event.data == b"got a\n"
            break
        p.write("b\n")
        p.close_stdin()
        rest = [e for e in p]
        assert b"".join(e.data for e in rest if isinstance(e, Chunk)) == b"got b\n"
        assert isinstance(rest[-1], Exited) and rest[-1].result.exit_code == 0
        assert (p.wait()).stdout == "got a\ngot b\n"
    with session.start(["sleep", "100"]) as p:
        p.signal("TERM")
        assert (p.wait()).signal == "SIGTERM"
    with session.start(["sleep", "100"]) as p:
        pass
    assert not [o for o in session.operations() if o.running]


def test_background_and_shell(session: Session) -> None:
    p = session.spawn("sleep 0.3; echo later")
    assert (session.process(p.op_id).wait()).stdout == "later\n"
    with session.shell("s") as shell:
        shell.run("cd /tmp; f() { echo f$1; }; export X=1")
        assert (shell.run("pwd; f 2; echo $X")).stdout.split() == ["/tmp", "f2", "1"]
        assert (shell.run("sleep 100", timeout=0.2)).timed_out
        assert (shell.run("echo fine")).stdout == "fine\n"


def test_a_terminal(session: Session) -> None:
    with session.pty(rows=30, cols=90) as p:
        p.write("stty size; exit\n")
        seen = b"".join([e.data for e in p if isinstance(e, Chunk)])
    assert b"30 90" in seen
    with session.pty(["sh", "-c", "trap 'stty size; exit' WINCH; echo on; while :; do sleep 0.1; done"]) as p:
        seen = b""
        for event in p:
            if isinstance(event, Chunk):
                seen += event.data
                if event.data.startswith(b"on"):
                    p.resize(31, 91)
    assert b"31 91" in seen


def test_one_op_id_is_one_execution(session: Session) -> None:
    for _ in range(3):
        r = session.exec("echo x >> n; wc -l < n", op_id="once")
        assert r.stdout.strip() == "1"
    with pytest.raises(dsec.UserError) as clash:
        session.exec("echo other", op_id="once")
    assert clash.value.reason == "idempotency_clash"


def test_files(session: Session) -> None:
    f = session.files
    info = f.write("d/ä b\n.txt", "hello", mode=0o600)
    assert (info.size, info.mode) == (5, 0o600)
    assert f.read_text("/workspace/d/ä b\n.txt") == "hello"
    f.write("d/ä b\n.txt", b" you", append=True)
    assert f.read("d/ä b\n.txt") == b"hello you"
    odd = b"d/\xff"
    f.write(odd, b"")
    assert f.read(odd) == b"" and f.exists(odd)
    assert sorted(os.fsencode(i.name) for i in f.list("d")) == [b"\xc3\xa4 b\n.txt", b"\xff"]
    f.mkdir("e/f")
    f.move(odd, "e/f/moved")
    assert not f.exists(odd)
    f.symlink("f/moved", "e/link")
    f.link("e/f/moved", "e/hard")
    assert (f.stat("e/link", follow=False)).target == "f/moved"
    assert (f.stat("e/hard")).links == 2
    f.chmod("e/hard", 0o755)
    assert (f.stat("e/f/moved")).mode == 0o755
    assert [i.path for i in f.list("e", depth=3) if i.type == "file"] != []
    f.remove("e", recursive=True)
    with pytest.raises(dsec.UserError) as gone:
        f.read("e/hard")
    assert gone.value.reason == "not_found"
    with pytest.raises(dsec.UserError):
        f.remove("nothing")


def test_large_files_go_through(session: Session, tmp_path: Path) -> None:
    data = os.urandom(1 << 20) * 20
    (tmp_path / "in").write_bytes(data)
    session.files.upload(tmp_path / "in", "big")
    session.files.download("big", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == data

    def pieces() -> Iterator[bytes]:
        for _ in range(3):
            yield b"x" * 100_000

    assert (session.files.write("pieces", pieces())).size == 300_000


def test_trees(session: Session, tmp_path: Path) -> None:
    (tmp_path / "src/sub").mkdir(parents=True)
    (tmp_path / "src/sub/a").write_text("A")
    session.files.upload_dir(tmp_path / "src", "tree")
    assert (session.exec("cat tree/sub/a")).stdout == "A"
    session.exec("echo B > tree/sub/b")
    session.files.download_dir("tree", tmp_path / "dst")
    names = [p.name for p in (tmp_path / "dst").rglob("*") if p.is_file()]
    assert sorted(names) == ["a", "b"]


def test_a_hostile_tree_stays_where_it_is_put(session: Session, tmp_path: Path) -> None:
    session.exec("mkdir t; ln -s /etc t/out; ln -s ../../.. t/up", check=True)
    with pytest.raises(dsec.PolicyError):
        session.files.download_dir("t", tmp_path / "dst")


def test_watch(session: Session) -> None:
    session.files.mkdir("w")
    p = session.spawn("for i in $(seq 100); do touch w/new; rm -f w/new; sleep 0.1; done")
    for change in session.files.watch("w"):
        assert change.path == "new"
        break
    p.kill()


def test_dial(session: Session) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 8123)); print('up', flush=True)\n"
        "c = s.accept()[0]; c.sendall(c.recv(100).upper())"
    )
    with session.start(["python3", "-c", server]) as p:
        for _ in p:
            break
        with session.dial("localhost:8123") as c:
            c.write(b"hello")
            assert c.read() == b"HELLO"
            assert c.read() == b""
    with pytest.raises(dsec.UserError):
        session.dial("localhost:8124")


def test_life(client: Client) -> None:
    with client.create(job="life", labels={"a": "b"}, env={"E": "1"}, secrets={"S": "2"}, spec={"mem_limit": "64Mi"}) as s:
        info = s.refresh()
        assert (info.phase, info.job, info.labels, info.env) == ("RUNNING", "life", {"a": "b"}, {"E": "1"})
        assert int(info.spec["mem_limit"]) == 64 << 20 and info.live and info.created is not None
        assert (s.exec("echo $E$S")).stdout == "12\n"
        assert (s.suspend()).phase == "SUSPENDED"
        assert (s.resume()).phase == "RUNNING"
        s.suspend()
        assert (s.exec("echo thawed")).stdout == "thawed\n"
        s.heartbeat()
        assert (s.inspect()).box["state"] == "live"
        assert [i.id for i in client.list(job="life", phases=["RUNNING"])] == [s.id]
        assert info.lease_id == client.lease_id
        assert [o.session_id for o in client.stop(job="life", reason="done")] == [s.id]
        assert (s.wait("COMPLETED")).reason == "done"
        with pytest.raises(dsec.UserError) as gone:
            s.exec("true")
        assert gone.value.reason == "box_gone"
    with pytest.raises(dsec.UserError) as unknown:
        client.session("s" + "0" * 25).refresh()
    assert (unknown.value.reason, unknown.value.retryable) == ("not_found", False)


def test_deadlines(client: Client) -> None:
    with client.create(lifetime=3600, at_deadline="suspend") as s:
        assert s.info is not None and s.info.deadline is not None and s.info.at_deadline == "suspend"
        first = s.info.deadline
        assert (s.extend(60)).deadline == first  # which is no extension
        later = (s.extend(7200)).deadline
        assert later is not None and 3500 < (later - first).total_seconds() < 3700
        assert (s.set_deadline(None)).deadline is None
        soon = s.set_deadline(1.5, then="stop")
        assert (soon.phase, soon.at_deadline) == ("RUNNING", "stop")
        assert "1.5s" in (s.wait("COMPLETED", timeout=30)).reason
        for call in (s.extend, s.set_deadline):
            with pytest.raises(dsec.UserError):  # it has ended
                call(60)
            with pytest.raises(dsec.UserError, match="time to come"):
                call(0)
    with pytest.raises(dsec.UserError, match="lifetime"):
        client.create(at_deadline="stop")


def test_a_group_keeps_failures_apart(client: Client) -> None:
    with client.create(count=4) as group:
        assert len(group) == 4 and not group.failures and len(set(group.ids)) == 4
        group[1].stop()
        outcomes = group.exec("hostname")
        assert [o.ok for o in outcomes] == [True, False, True, True]
        assert not outcomes[1].infrastructure
        with pytest.raises(dsec.UserError):
            outcomes[1].unwrap()

        def work(s: Session) -> int:
            s.files.write("f", s.id)
            return len(s.files.read("f"))

        assert [o.value for o in group.map(work, limit=2)] == [26, None, 26, 26]
        suspended = group.suspend()
        assert [o.ok for o in suspended] == [True, False, True, True]
        assert all(o.ok for o in (group.resume())[2:])
    assert [i.id for i in client.list(lease_id=client.lease_id, phases=["RUNNING"])] == []


def test_creates_that_cannot_be(client: Client) -> None:
    with pytest.raises(dsec.UserError, match="no-such"):
        client.create("no-such")
    with pytest.raises(dsec.UserError, match="mem_limt"):
        client.create(spec={"mem_limt": 1})
    with pytest.raises(dsec.DSecError) as full:
        client.create(count=2, spec={"mem_limit": "100Ti"})
    assert full.value.error_class in ("limit", "user")


def test_one_key_is_one_create(client: Client) -> None:
    key = "k-" + os.urandom(8).hex()
    a = client.create(idempotency_key=key)
    with a:
        b = client.create(idempotency_key=key)
        assert a.id == b.id
        with pytest.raises(dsec.UserError) as clash:
            client.create(idempotency_key=key, job="other")
        assert clash.value.reason == "idempotency_clash"


def test_templates(client: Client) -> None:
    base = client.templates.get("base")
    assert base.ref in [t.ref for t in client.templates.list()]
    with client.create(base.ref) as s:
        assert s.info is not None and s.info.template == base.ref

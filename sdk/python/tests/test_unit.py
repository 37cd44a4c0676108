"""What needs no server."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import pytest

import dsec
from dsec import _bulk, _tar, _wire
from dsec._config import configure
from dsec._io.aio import Pace
from dsec._retry import Lost, Retry, Unreached

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


def test_the_threads_twin_is_fresh() -> None:
    subprocess.run([sys.executable, ROOT / "scripts/unasync.py", "--check"], check=True)


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
def test_frames_come_in_any_pieces(size: int) -> None:
    messages = [{"a": i, "b": "ü" * i} for i in range(20)]
    data = b"".join(_wire.frame(_wire.encode(m)) for m in messages)
    end = b'{"error":{"code":"unknown","details":[{"type":"dsec.v1.Error","debug":{"class":"policy","reason":"forbidden","message":"no"}}]}}'
    data += struct.pack(">BI", 2, len(end)) + end
    frames, got = _wire.Frames(), []
    with pytest.raises(dsec.PolicyError, match="no"):
        for at in range(0, len(data), size):
            got += list(frames.feed(data[at : at + size]))
    if size < 100:
        assert got == messages
    assert frames.ended


@pytest.mark.parametrize("data", [b"\x04\0\0\0\0", b"\0\xff\xff\xff\xff", b"\0\0\0\0\x01x", b"\0\0\0\0\x011"])
def test_hostile_frames_are_infrastructure(data: bytes) -> None:
    with pytest.raises(dsec.InfrastructureError):
        list(_wire.Frames().feed(data))


def last(steps: Iterable[T | None]) -> tuple[int, T]:
    *pauses, value = list(steps)
    assert value is not None and not any(pauses)
    return len(pauses), value


@pytest.mark.parametrize("size", [0, 1, 200_000, (1 << 20) - 1, 5_000_003])
def test_large_bytes_go_through_the_wire(size: int) -> None:
    """Whatever else is in the message, and however it looks."""
    data = os.urandom(size)
    message = {"a": data, "list": [{"b": data[: size // 2]}, "x" * 300_000], "n": 1, "text": '"\\' * 200_000 + "é"}
    pauses, text = last(_bulk.writing(message))
    plain = json.loads(text)
    assert base64.b64decode(plain["a"]) == data and plain["text"] == message["text"]
    pauses, got = last(_bulk.reading(text))
    assert _wire.to_bytes(got["a"]) == data and _wire.to_bytes(got["list"][0]["b"]) == data[: size // 2]
    assert (got["text"], got["list"][1], got["n"]) == (message["text"], "x" * 300_000, 1)
    assert pauses >= size * 4 // 3 // _bulk.STEP


def test_hostile_large_answers_are_infrastructure() -> None:
    for text in (b'"' * 400_000, b'{"a":"' + b"A" * 400_000, b"\\" * 400_000):
        with pytest.raises(dsec.InfrastructureError):
            list(_bulk.reading(text))
    assert last(_bulk.reading(b"{" + b" " * 400_000 + b"}"))[1] == {}
    odd = "!" * 400_000  # no bytes at all
    assert last(_bulk.reading(_wire.encode({"a": odd})))[1] == {"a": odd}


def test_a_group_says_whether_it_is_whole() -> None:
    client = dsec.AsyncClient("http://127.0.0.1:1", "e2b_00")
    lost = dsec.InfrastructureError("no room")
    made = dsec.Outcome(0, "s1", client.session("s1"))
    part = dsec.AsyncGroup(client._rpc, [made, dsec.Outcome(1, "", error=lost)])
    assert (len(part), [o.index for o in part.failures]) == (1, [1])
    with pytest.raises(dsec.InfrastructureError, match="no room"):
        part.check()
    assert len(dsec.AsyncGroup(client._rpc, [made]).check()) == 1


def test_errors_keep_what_they_say() -> None:
    wire = {"class": "limit", "reason": "queue_full", "message": "m", "object": "o", "remedy": "r", "retryable": True}
    e = _wire.response_error(429, json.dumps({"details": [{"type": "dsec.v1.Error", "debug": wire}]}).encode(), "3")
    assert isinstance(e, dsec.LimitError) and str(e) == "o: m (r)" and e.retry_after == 3
    copy = pickle.loads(pickle.dumps(e))
    assert type(copy) is dsec.LimitError and copy.__dict__ == e.__dict__
    for status, body in ((502, b"<html>"), (200, b"[]"), (500, b"{}"), (404, b"null")):
        assert isinstance(_wire.response_error(status, body, "soon"), dsec.InfrastructureError)


def test_retries() -> None:
    def error(cls: type[dsec.DSecError] = dsec.LimitError, reason: str = "rate_limited", retryable: bool = True, after: float | None = None) -> dsec.DSecError:
        return cls("m", reason=reason, retryable=retryable, retry_after=after)

    unsafe, safe = Retry(10, 0, False), Retry(10, 0, True)
    assert unsafe.after(Unreached("m"), 0) is not None
    assert unsafe.after(Lost("m"), 0) is None and safe.after(Lost("m"), 0) is not None
    unavailable = error(dsec.InfrastructureError, "unavailable")
    assert unsafe.after(unavailable, 0) is None and safe.after(unavailable, 0) is not None
    assert unsafe.after(error(), 0) is not None
    assert safe.after(error(reason="queue_full"), 0) is None
    assert safe.after(error(retryable=False), 0) is None
    pause = safe.after(error(after=4), 0)
    assert pause is not None and 4 <= pause <= 6
    assert safe.after(Unreached("m"), 10) is None
    waits = [w for w in (Retry(1e9, 0, True).after(Lost("m"), 0) for _ in range(50)) if w]
    assert len(set(waits)) > 10  # no two come back together


def test_where_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DSEC_URL", "DSEC_API_KEY", "DSEC_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert configure(None, None, None, 1, None).socket == "/var/lib/dsec/dsec.sock"
    monkeypatch.setenv("DSEC_DATA_DIR", "/d")
    assert configure(None, None, None, 1, None).socket == "/d/dsec.sock"
    monkeypatch.setenv("DSEC_URL", "http://h:1/p/")
    monkeypatch.setenv("DSEC_API_KEY", "e2b_1")
    c = configure(None, None, "proj", 1, None)
    assert (c.base, c.headers["Authorization"], c.headers["Dsec-Project"]) == ("http://h:1/p", "Bearer e2b_1", "proj")
    with pytest.raises(dsec.UserError, match="names no server"):
        configure("localhost:7070", None, None, 1, None)


async def test_pace_bounds_the_young_and_lets_the_old_be() -> None:
    pace = Pace(width=2)
    a, b = await pace.enter(), await pace.enter()
    third = asyncio.create_task(pace.enter())
    await asyncio.sleep(0)
    assert not third.done()
    a()
    a()
    c = await third
    late = await asyncio.wait_for(pace.enter(), 1)  # b and c have become old
    for leave in (b, c, late):
        leave()
    assert pace.patience > pace.SHORT  # they were quick after all
    waiting = [asyncio.create_task(pace.enter()) for _ in range(20)]
    await asyncio.sleep(0)
    for w in waiting[5:]:
        w.cancel()
    for leave in await asyncio.gather(*waiting[:5]):
        leave()
    assert pace._free == 2
    pace.SLOW = 0.1
    slow = [await pace.enter() for _ in range(6)]
    await asyncio.sleep(0.3)
    assert pace.patience == pace.SHORT
    for leave in slow:
        leave()
    assert pace._free == 2


def test_a_tar_cannot_leave_its_place(tmp_path: Path) -> None:
    for member in (tarfile.TarInfo("../out"), tarfile.TarInfo("/abs")):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            tar.addfile(member)
        try:
            _tar.unpack(data, tmp_path / "in")
        except dsec.PolicyError:
            pass
        assert [p.name for p in tmp_path.iterdir()] == ["in"]


def test_the_type_checker_sees_types() -> None:
    assert (Path(dsec.__file__).parent / "py.typed").exists()

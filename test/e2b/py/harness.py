"""What cases share: assertions, refusals, and one way to write a case for the sync and the async SDK."""

import asyncio
import inspect
import os
import re
import time

import record

cases = []
refusals = []
tag = f"{os.environ.get('CONF_RUN', 'run')}-{int(time.time())}-{os.getpid()}"


def case(name, only=lambda k: True):
    def add(fn):
        cases.append((name, fn, only))
        return fn

    return add


async def w(value):
    """Awaits what the async SDK gives; what the sync SDK gives is the result."""
    return await value if inspect.isawaitable(value) else value


async def of(value):
    """All of an iterator of either kind."""
    return [x async for x in value] if hasattr(value, "__aiter__") else list(value)


def eq(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def match(text, pattern):
    assert re.search(pattern, str(text), re.S | re.I), f"{text!r} does not match {pattern!r}"


async def throws(cls, pattern, fn):
    try:
        got = await w(fn())
    except Exception as e:
        if not isinstance(e, cls):
            raise AssertionError(f"want {cls}, got {type(e).__name__}: {e}") from e
        match(e, pattern)
        return e
    raise AssertionError(f"want {cls}, got the result {got!r:.300}")


async def refused(ids, reason, pattern, fn, cls=Exception):
    with record.mute():
        await throws(cls, pattern, fn)
    refusals.extend({"call": i, "reason": reason} for i in ([ids] if isinstance(ids, str) else ids))


def limited(ids, reason):
    """Says of calls that work for what they do not do here; the case has shown it."""
    refusals.extend({"call": i, "reason": reason} for i in ids)


async def eventually(what, fn, seconds=10):
    end = time.monotonic() + seconds
    while True:
        v = await w(fn())
        if v:
            return v
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.05)

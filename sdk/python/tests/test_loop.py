"""What a trainer's event loop sees."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

import dsec


async def held_up(stop: asyncio.Event) -> list[float]:
    """How much this process computed each time between two looks of somebody who only waits.

    It is counted in CPU time: how late the looks are says more of the machine's other load.
    """
    busy: list[float] = []
    while not stop.is_set():
        at = time.process_time()
        await asyncio.sleep(0.005)
        busy.append(time.process_time() - at)
    return sorted(busy)


async def test_calls_do_not_hold_up_the_loop(async_client: dsec.AsyncClient) -> None:
    spec = {"mem_limit": 16 << 20}
    async with async_client.create(count=50, spec=spec) as group:
        stop = asyncio.Event()
        watch = asyncio.create_task(held_up(stop))

        async def agent(s: dsec.AsyncSession) -> None:
            for _ in range(10):
                (await s.exec("head -c 20000 /dev/zero")).check()
            await s.files.write("f", b"x" * 1_000_000)
            assert len(await s.files.read("f")) == 1_000_000

        await asyncio.gather(*(agent(s) for s in group))
        stop.set()
        busy = await watch
    assert busy[len(busy) * 99 // 100] < 0.05, busy[-5:]


MIB8 = 8 << 20


async def much_output(s: dsec.AsyncSession) -> None:
    r = await s.exec(f"head -c {MIB8} /dev/urandom | tee data; head -c {MIB8} data >&2", max_output=MIB8)
    assert len(r.out.data) == MIB8 and r.out.data == r.err.data == await s.files.read("data")


async def much_output_later(s: dsec.AsyncSession) -> None:
    p = await s.spawn(f"head -c {MIB8} /dev/zero", max_output=MIB8)
    assert (await p.wait()).out.data == bytes(MIB8)


async def much_input(s: dsec.AsyncSession) -> None:
    data = os.urandom(MIB8)
    r = await s.exec("sha256sum", stdin=data)
    assert r.stdout.split()[0] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("call", [much_output, much_output_later, much_input])
async def test_megabytes_do_not_hold_up_the_loop(
    async_client: dsec.AsyncClient, call: Callable[[dsec.AsyncSession], Awaitable[None]]
) -> None:
    async with async_client.create(spec={"mem_limit": "1Gi"}) as session:
        await session.exec("true")
        stop = asyncio.Event()
        watch = asyncio.create_task(held_up(stop))
        await call(session)
        stop.set()
        busy = await watch
    assert busy[-1] < 0.05, busy[-5:]


async def test_two_thousand_calls_are_in_flight_at_a_time(async_client: dsec.AsyncClient) -> None:
    """Each waits for the same file; it is made when all have begun."""
    async with async_client.create(spec={"mem_limit": "2Gi", "pid_limit": 9000}) as session:
        async with await session.start("while ! [ -e go ]; do sleep 0.1; done") as gate:
            waits = [asyncio.create_task(gate.wait()) for _ in range(2000)]
            await asyncio.sleep(2)
            assert not any(w.done() for w in waits)
            assert (await session.exec("touch go")).ok  # short calls are not held up
            assert all(r.exit_code == 0 for r in await asyncio.gather(*waits))


async def test_a_cancelled_create_leaves_nothing(async_client: dsec.AsyncClient) -> None:
    spec = {"mem_limit": 16 << 20}
    for pause in (0.0, 0.01, 0.05):
        job = f"cancelled-{time.time_ns()}"
        # So many that none of the pauses outlasts the create.
        create = async_client._create_many({"job": job, "spec": spec}, 300, True, None)
        task = asyncio.ensure_future(create)
        await asyncio.sleep(pause)
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadline = time.monotonic() + 30
        while [s async for s in async_client.list(job=job) if s.live]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def test_a_cancelled_command_is_killed(async_session: dsec.AsyncSession) -> None:
    await async_session.exec("true")
    background = await async_session.spawn("sleep 4242")
    mine = asyncio.ensure_future(async_session.exec("sleep 4242", op_id="mine"))
    heard: list[bytes] = []
    for pause in (0.0, 0.002, 0.02, 0.3):
        for hear in (None, heard.append):
            call = async_session.exec("echo begun; setsid sleep 777 & sleep 777", on_stdout=hear)
            task = asyncio.ensure_future(call)
            await asyncio.sleep(pause)
            begun = time.monotonic()
            assert task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert time.monotonic() - begun < 3
    # asyncio's own time-outs cancel too.
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(async_session.exec("sleep 777"), 0.3)

    def fail(_: bytes) -> None:
        raise ValueError("not what was expected")

    with pytest.raises(ValueError):
        await async_session.exec("echo x; sleep 777", on_stdout=fail)
    mine.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mine
    deadline = time.monotonic() + 10
    count = "grep -lz '^%s$' /proc/[0-9]*/cmdline 2>/dev/null | wc -l"
    while (left := (await async_session.exec(count % 777)).stdout.strip()) != "0":
        assert time.monotonic() < deadline, left
        await asyncio.sleep(0.1)
    running = {o.op_id for o in await async_session.operations() if o.running}
    assert running == {background.op_id, "mine"}


def test_an_interrupted_command_is_killed(session: dsec.Session) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        with pytest.raises(KeyboardInterrupt):
            session.exec("sleep 777")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    deadline = time.monotonic() + 10
    while any(o.running for o in session.operations()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_one_client_serves_several_loops() -> None:
    client = dsec.AsyncClient()

    async def use() -> str:
        async with client.create() as s:
            return (await s.exec("echo used")).stdout

    async def last() -> str:
        try:
            return await use()
        finally:
            await client.aclose()

    assert asyncio.run(last()) == "used\n"
    assert asyncio.run(last()) == "used\n"

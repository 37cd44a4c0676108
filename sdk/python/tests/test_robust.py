"""Connections break, servers die: nothing is lost, nothing runs twice."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import dsec


async def test_a_killed_server_costs_time_only(daemon: Any) -> None:
    async with dsec.AsyncClient(daemon.url, daemon.key, retry_for=120) as client:
        async with client.create(count=4) as group:
            group.check()
            count = 0

            async def agent(s: dsec.AsyncSession) -> None:
                nonlocal count
                for n in range(30):
                    r = (await s.exec("echo x >> n; wc -l < n")).check()
                    assert int(r.stdout) == n + 1  # no operation ran twice, or not at all
                    count += 1

            async def follow(s: dsec.AsyncSession) -> bytes:
                out = b""
                async for e in await s.start("for i in $(seq 40); do echo $i; sleep 0.1; done"):
                    if isinstance(e, dsec.Chunk):
                        out += e.data
                return out

            async def killer() -> None:
                for _ in range(2):
                    at = count
                    while count < at + 10:
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(daemon.kill)
                    await asyncio.sleep(0.3)
                    daemon.start()

            results = await asyncio.gather(
                killer(), follow(group[0]), *(agent(s) for s in group)
            )
            assert results[1] == b"".join(b"%d\n" % i for i in range(1, 41))


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(dsec.InfrastructureError, match="cannot be reached") as e:
        dsec.Client("http://127.0.0.1:9").health()
    assert e.value.retryable and e.value.reason == "unavailable"
    assert time.monotonic() - begun < 10


def test_a_wrong_key_is_told() -> None:
    with pytest.raises(dsec.UserError) as e:
        dsec.Client(api_key="e2b_0").health()
    assert e.value.reason == "unauthenticated"


def test_threads_share_a_client(client: dsec.Client) -> None:
    with client.create(spec={"mem_limit": "1Gi"}) as session:
        gate = session.start("while ! [ -e go ]; do sleep 0.1; done")
        done: list[int] = []

        def wait() -> None:
            done.append(gate.wait().exit_code)

        threads = [threading.Thread(target=wait) for _ in range(300)]
        for t in threads:
            t.start()
        session.exec("sleep 1; touch go").check()
        for t in threads:
            t.join(60)
        assert done == [0] * 300

#!/usr/bin/env python3
"""One asyncio process, many sessions, many operations: what a trainer's process costs.

    DSEC_URL=… DSEC_API_KEY=… bench/throughput.py --client dsec --sessions 1000 --ops 20

Every operation is `true` in a shell, in a box of the template ``--template``. Prints one line of JSON: failures, operations a second, the event loop's lag and the CPU
time of this process. ``--client e2b`` does the same with the ``e2b`` package (if it is
installed) on the same server, for comparison in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

#: Pause between two looks at the clock.
TICK = 0.005


class Lag:
    """How late the event loop comes back to somebody who only wants to look at the clock,

    and how much this process computed meanwhile, which the machine's other load does not touch.
    """

    def __init__(self) -> None:
        self.late: list[float] = []
        self.busy: list[float] = []
        self._task: asyncio.Task[None] | None = None

    async def _run(self) -> None:
        while True:
            at, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK)
            self.late.append(time.perf_counter() - at - TICK)
            self.busy.append(time.process_time() - cpu)

    async def __aenter__(self) -> Lag:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()

    @staticmethod
    def quantile_ms(seconds: list[float], q: float) -> float:
        """Milliseconds that the share ``q`` does not pass."""
        ordered = sorted(seconds) or [0.0]
        return round(ordered[min(len(ordered) - 1, int(q * len(ordered)))] * 1000, 2)


Run = Callable[[list[Callable[[], Awaitable[bool]]]], Awaitable[None]]


async def with_dsec(template: str, sessions: int, run: Run) -> None:
    import dsec

    async with dsec.AsyncClient() as client:
        async with client.create(template, count=sessions) as group:
            group.check()

            def op(session: dsec.AsyncSession) -> Callable[[], Awaitable[bool]]:
                async def call() -> bool:
                    return (await session.exec("true")).ok

                return call

            await run([op(s) for s in group])


async def with_e2b(template: str, sessions: int, run: Run) -> None:
    from e2b import AsyncSandbox

    slots = asyncio.Semaphore(32)
    boxes: list[Any] = []

    async def make() -> None:
        async with slots:
            boxes.append(await AsyncSandbox.create(template, timeout=900))

    async def kill(box: Any) -> None:
        async with slots:
            await box.kill()

    try:
        await asyncio.gather(*(make() for _ in range(sessions)))

        def op(box: Any) -> Callable[[], Awaitable[bool]]:
            async def call() -> bool:
                return (await box.commands.run("true")).exit_code == 0

            return call

        await run([op(b) for b in boxes])
    finally:
        await asyncio.gather(*(kill(b) for b in boxes), return_exceptions=True)


async def bench(client: str, template: str, sessions: int, ops: int) -> dict[str, Any]:
    result: dict[str, Any] = {"client": client, "sessions": sessions, "ops": sessions * ops}
    failures: list[str] = []
    begun = time.perf_counter()

    async def run(calls: list[Callable[[], Awaitable[bool]]]) -> None:
        result["create_s"] = round(time.perf_counter() - begun, 2)

        async def agent(call: Callable[[], Awaitable[bool]]) -> None:
            for _ in range(ops):
                try:
                    if not await call():
                        failures.append("the command failed")
                except Exception as e:
                    failures.append(f"{type(e).__name__}: {e}")

        async with Lag() as lag:
            cpu, at = time.process_time(), time.perf_counter()
            await asyncio.gather(*(agent(c) for c in calls))
            took = time.perf_counter() - at
        result.update(
            seconds=round(took, 2),
            ops_per_s=round(sessions * ops / took, 1),
            cpu_us_per_op=round((time.process_time() - cpu) / (sessions * ops) * 1e6),
            lag_p50_ms=lag.quantile_ms(lag.late, 0.5),
            lag_p99_ms=lag.quantile_ms(lag.late, 0.99),
            lag_max_ms=lag.quantile_ms(lag.late, 1),
            busy_p99_ms=lag.quantile_ms(lag.busy, 0.99),
        )

    await (with_dsec if client == "dsec" else with_e2b)(template, sessions, run)
    result["failures"] = len(failures)
    result["first_failure"] = failures[0] if failures else ""
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", choices=["dsec", "e2b"], default="dsec")
    parser.add_argument("--template", default="base")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--ops", type=int, default=20)
    args = parser.parse_args()
    # Each session may have a connection.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result = asyncio.run(bench(args.client, args.template, args.sessions, args.ops))
    print(json.dumps(result))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

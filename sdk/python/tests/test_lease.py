"""Who owns sessions, and what becomes of them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

import dsec

Trainer = Callable[[str], "subprocess.Popen[str]"]

HOLD = """
import dsec, time, sys
{before}
client = dsec.Client(lease_ttl={ttl}, on_owner_lost="{lost}")
group = client.create(count={count}, spec={{"mem_limit": "16Mi"}}).check()
print(client.lease_id, flush=True)
{after}
"""


def hold(
    trainer: Trainer,
    count: int,
    ttl: float,
    lost: str = "stop",
    before: str = "",
    after: str = "time.sleep(1000)",
) -> tuple["subprocess.Popen[str]", str]:
    process = trainer(HOLD.format(count=count, ttl=ttl, lost=lost, before=before, after=after))
    assert process.stdout is not None and process.stderr is not None
    lease = process.stdout.readline().strip()
    assert lease, process.stderr.read()
    return process, lease


def left(client: dsec.Client, lease: str) -> list[dsec.SessionInfo]:
    return [s for s in client.list(lease_id=lease) if s.live]


def gone_within(client: dsec.Client, lease: str, seconds: float) -> float:
    begun = time.monotonic()
    while left(client, lease):
        assert time.monotonic() - begun < seconds, f"{len(left(client, lease))} sessions are left"
        time.sleep(0.2)
    return time.monotonic() - begun


def test_a_killed_trainer_leaves_nothing(client: dsec.Client, trainer: Trainer) -> None:
    process, lease = hold(trainer, 200, 4.0)
    time.sleep(5)  # it says that it lives
    assert len(left(client, lease)) == 200
    process.kill()
    gone_within(client, lease, 4.0 + 5.0)
    ended = list(client.list(lease_id=lease))
    assert len(ended) == 200
    for s in ended:
        assert s.phase == "FAILED" and s.reclaim == "acked" and s.error is not None
        assert (s.error.error_class, s.error.reason) == ("limit", "owner_lost")
    with pytest.raises(dsec.LimitError, match="no sign of life"):
        client.session(ended[0].id).exec("true")


def test_a_killed_trainer_is_taken_over(client: dsec.Client, trainer: Trainer) -> None:
    process, lease = hold(trainer, 3, 2.0, lost="suspend")
    process.kill()
    deadline = time.monotonic() + 7
    while [s.phase for s in left(client, lease)] != ["SUSPENDED"] * 3:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    with dsec.Client(lease_id=lease) as heir:
        with heir.create():
            assert heir.lease_id == lease
        for s in left(client, lease):
            assert heir.session(s.id).exec("echo alive").stdout == "alive\n"
    assert not left(client, lease)


@pytest.mark.parametrize(("after", "code"), [("raise SystemExit(7)", 7), ("1 / 0", 1)])
def test_the_lease_is_released_at_exit(
    client: dsec.Client, trainer: Trainer, after: str, code: int
) -> None:
    process, lease = hold(trainer, 2, 600, after=after)
    assert process.wait(60) == code
    assert not left(client, lease)
    assert {s.phase for s in client.list(lease_id=lease)} == {"COMPLETED"}


ASYNC = """
async def main():
    client = dsec.AsyncClient(lease_ttl=600)
    await client.create(count=2)
    print(client.lease_id, flush=True)
    await asyncio.sleep(1000)
"""


@pytest.mark.parametrize("kind", ["threads", "loop"])
def test_sigterm_releases(client: dsec.Client, trainer: Trainer, kind: str) -> None:
    if kind == "threads":
        process, lease = hold(trainer, 2, 600)
    else:
        process = trainer(f"import asyncio, dsec\n{ASYNC}\nasyncio.run(main())")
        assert process.stdout is not None
        lease = process.stdout.readline().strip()
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM
    assert not left(client, lease)


def test_a_handler_of_ones_own_is_kept(client: dsec.Client, trainer: Trainer) -> None:
    process, lease = hold(
        trainer,
        2,
        600,
        before="import signal; signal.signal(15, lambda *a: (print('mine', flush=True), sys.exit(5)))",
    )
    process.terminate()
    assert process.wait(60) == 5
    assert process.stdout is not None and process.stdout.read() == "mine\n"
    assert not left(client, lease)


def test_a_notice_that_is_survived_ends_nothing(client: dsec.Client, trainer: Trainer) -> None:
    process, lease = hold(
        trainer,
        1,
        600,
        before="import signal; signal.signal(15, lambda *a: print('noted', flush=True))",
    )
    process.terminate()
    assert process.stdout is not None and process.stdout.readline() == "noted\n"
    time.sleep(0.5)
    assert len(left(client, lease)) == 1
    process.kill()
    assert [o.ok for o in client.stop(lease_id=lease)] == [True]


def test_a_forked_child_owns_nothing_of_its_parents(client: dsec.Client) -> None:
    with client.create() as session:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert client.lease_id == ""
                assert session.exec("echo child").stdout == "child\n"
                with client.create() as own:
                    assert own.exec("echo own").ok
                    assert client.lease_id
                client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert session.exec("echo parent").stdout == "parent\n"


async def test_a_busy_event_loop_is_no_death(async_client: dsec.AsyncClient) -> None:
    async with dsec.AsyncClient(lease_ttl=1.0) as own, own.create() as session:
        time.sleep(3)  # whoever does this blocks the loop, and lives
        assert own.lease_lost is None
        assert (await session.exec("echo alive")).ok


async def test_many_creates_are_one_owner(async_client: dsec.AsyncClient) -> None:
    made = await asyncio.gather(*(async_client.create() for _ in range(10)))
    leases = {s.info.lease_id for s in made if s.info is not None}
    assert leases == {async_client.lease_id}
    await async_client.release()
    assert {(await s.refresh()).phase for s in made} == {"COMPLETED"}
    async with async_client.create() as again:  # a new lease
        assert again.info is not None and again.info.lease_id not in leases


def test_sessions_can_be_let_go(client: dsec.Client) -> None:
    with dsec.Client() as own:
        kept = own.create()
        free = own.create(owned=False)
        own.release(keep_sessions=True)
    with dsec.Client(lease_ttl=None) as nobody:
        third = nobody.create()
    for s in (kept, free, third):
        with client.session(s.id) as session:
            assert session.exec("true").ok


def test_a_lost_lease_is_told_and_replaced(client: dsec.Client, trainer: Trainer) -> None:
    process, lease = hold(
        trainer,
        1,
        1.0,
        after="sys.stdin.read() if False else None\n"
        "deadline = time.monotonic() + 60\n"
        "while client.lease_lost is None and time.monotonic() < deadline: time.sleep(0.05)\n"
        "print(type(client.lease_lost).__name__, client.lease_lost.reason, flush=True)\n"
        "s = client.create(); print(s.info.lease_id != group[0].info.lease_id, flush=True)",
    )
    process.send_signal(signal.SIGSTOP)
    gone_within(client, lease, 6)
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=60)
    assert out.split() == ["LimitError", "owner_lost", "True"], err

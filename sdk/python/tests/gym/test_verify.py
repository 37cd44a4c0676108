"""Grading in a fresh box: what an agent did to its own box does not grade it."""

from __future__ import annotations

from typing import Any

import pytest

import dsec
from dsec.gym import DSecEnv, Task
from dsec.verify import Case, Verifier

TESTS = "from solution import add\nassert add(2, 3) == 5 and add(-1, 1) == 0\nprint('ok')\n"
BY_COMMAND = Verifier(files=["solution.py"], trusted={"check.py": TESTS}, command=["python3", "check.py"])
RIGHT = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
TOOLS = {"fs": {"rootfs": "writable"}, "user": "root"}

#: Each makes `python3 check.py` succeed in the agent's own box, whatever the solution is.
POISONS = {
    "the interpreter": "rm -f /usr/bin/python3; printf '#!/bin/sh\\necho ok\\n' > /usr/bin/python3; chmod 755 /usr/bin/python3",
    "PATH": "mkdir -p /usr/local/bin; printf '#!/bin/sh\\necho ok\\n' > /usr/local/bin/python3; chmod 755 /usr/local/bin/python3",
    "the standard library": "sed -i '1i import posix; posix._exit(0)' /usr/lib/python3.*/encodings/__init__.py",
    "sitecustomize": "for d in /usr/lib/python3.*; do rm -f $d/sitecustomize.py; echo 'import os; os._exit(0)' > $d/sitecustomize.py; done",
    "the tests": "printf 'import os\\nos._exit(0)\\n' > check.py",
    "the shell's profile": "echo 'python3() { echo ok; }' > /etc/profile; cp /etc/profile ~/.bashrc; cp /etc/profile ~/.profile; rm -f /usr/bin/python3; printf '#!/bin/sh\\n' > /usr/bin/python3; chmod 755 /usr/bin/python3",
    "the loader": "cp /bin/true /usr/bin/python3; echo /nonexistent.so > /etc/ld.so.preload",
}


@pytest.mark.parametrize("poison", list(POISONS), ids=lambda p: p.replace(" ", "_"))
def test_a_poisoned_toolchain(client: dsec.Client, poison: str) -> None:
    with client.create("debian", spec=TOOLS) as agent:
        agent.files.write("check.py", TESTS)
        agent.files.write("solution.py", WRONG)
        assert not agent.exec(["python3", "check.py"]).ok
        agent.exec(POISONS[poison], check=True)
        # conftest.py and a pytest of its own go without saying
        agent.files.write("conftest.py", "import os; os._exit(0)")
        agent.files.write("pytest.py", "import os; os._exit(0)")
        assert agent.exec(["python3", "check.py"]).ok, "the poison does not work"
        verdict = BY_COMMAND.grade(client, agent)
        assert verdict.reward == 0.0 and verdict.results[-1].exit_code == 1, verdict
        agent.files.write("solution.py", RIGHT)
        assert BY_COMMAND.grade(client, agent).passed


def test_files_that_are_not_what_they_are_named(client: dsec.Client) -> None:
    verifier = Verifier(files=["f"], optional=["f"], trusted={"x": ""}, command="test -f f", max_bytes=1 << 20)
    with client.create("debian", spec=TOOLS) as agent:
        for make in (
            "ln -s /etc/passwd f", "ln -s check.py f", "ln -s . f", "mkfifo f", "mkdir f",
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"f\")'",
            "ln -s /dev/zero f", "truncate -s 1T f || truncate -s 100M f", "head -c 1048577 /dev/zero > f", "true",
        ):
            agent.exec(f"cd /workspace && rm -rf f && {make}", check=True)
            verdict = verifier.grade(client, agent)
            assert list(verdict.refused) == ["f"] and verdict.reward == 0.0, (make, verdict)
        # A hard link is a file like any other: only its content comes along.
        agent.exec("rm -rf f; cp /etc/shadow g; chmod 4777 g; ln g f", check=True)
        taken = Verifier(files=["f"], command="stat -c '%a %u %h' f; wc -c < f")
        verdict = taken.grade(client, agent)
        mode, size = verdict.results[0].stdout.splitlines()
        assert verdict.passed and mode.startswith("644 ") and mode.endswith(" 1") and int(size) > 0
        # A directory on the way that is a link leads somewhere in the agent's own box, and nowhere else.
        agent.exec("rm -rf f; mkdir -p real; echo agents > real/h; ln -sfn real d", check=True)
        verdict = Verifier(files=["d/h"], command="cat d/h; test ! -L d").grade(client, agent)
        assert verdict.passed and verdict.results[0].stdout == "agents\n"


def test_a_file_that_grows_while_it_is_read(client: dsec.Client) -> None:
    verifier = Verifier(files=["f"], command="true", max_bytes=100_000)
    with client.create() as agent:
        agent.spawn("while :; do : > f; head -c 50000 /dev/zero >> f; head -c 9000000 /dev/zero >> f; done")
        for _ in range(5):
            verdict = verifier.grade(client, agent)
            assert verdict.passed or verdict.refused


def test_cases_are_judged_outside(client: dsec.Client) -> None:
    verifier = Verifier(
        files=["a.py"],
        cases=[Case("python3 a.py", stdin="2 3", stdout="5"), Case("python3 a.py", stdin="x", exit_code=2)],
        timeout=2,
    )
    good = "import sys\ntry:\n    print(sum(map(int, input().split())), ' ')\nexcept ValueError:\n    sys.exit(2)\n"
    with client.create() as agent:
        for source, reward in (
            (good, 1.0), ("print(5)", 0.5), ("import os; os._exit(0)", 0.0), ("while True: pass", 0.0),
            ("x = 'y'\nwhile True: x += x", 0.0), ("import os; os.kill(-1, 9)", 0.0),
        ):
            agent.files.write("a.py", source)
            verdict = verifier.grade(client, agent)
            assert verdict.reward == reward, (source, verdict)
        agent.files.write("a.py", good)
        agent.exec("sleep 1000 &")
        assert verifier.grade(client, agent).passed
    assert verifier.grade(client, agent).reward == 0.0  # its box is gone, by nobody's fault but its own
    with pytest.raises(dsec.UserError):
        Verifier(files=["a.py"])


def test_what_is_too_much_for_the_fresh_box(client: dsec.Client) -> None:
    small = Verifier(files=["f"], command="true", spec={"mem_limit": "32Mi", "fs": {"writable_size_limit": "4Mi"}})
    with client.create() as agent:
        agent.exec("head -c 8000000 /dev/urandom > f", check=True)
        verdict = small.grade(client, agent)
        assert verdict.reward == 0.0 and verdict.reason
    wrong = Verifier(trusted={"/proc/nowhere": "x"}, command="true")
    with client.create() as agent, pytest.raises(dsec.UserError):
        wrong.grade(client, agent)


def test_the_fresh_box_is_stopped_and_failures_are_raised(client: dsec.Client, wire: Any, wired: dsec.Client) -> None:
    with client.create() as agent:
        agent.files.write("solution.py", RIGHT)
        assert BY_COMMAND.grade(client, agent).passed
        labels = {"dsec-verify": agent.id}
        assert [s.phase for s in client.list(labels=labels)] == ["COMPLETED"]
        theirs = wired.session(agent.id)
        wire.cut()
        with pytest.raises(dsec.InfrastructureError):
            BY_COMMAND.grade(wired, theirs)


@pytest.mark.asyncio
async def test_on_an_event_loop(async_client: dsec.AsyncClient) -> None:
    async with async_client.create() as agent:
        await agent.files.write("solution.py", RIGHT)
        assert (await BY_COMMAND.grade_async(async_client, agent)).passed
        await agent.files.write("solution.py", WRONG)
        assert not (await BY_COMMAND.grade_async(async_client, agent)).passed


def test_an_environments_reward_is_not_to_be_had_by_poison() -> None:
    task = Task("Write add(a, b) into solution.py.", checker=BY_COMMAND, template="debian", spec=TOOLS)
    env = DSecEnv(task)
    for source, reward in ((WRONG, 0.0), (RIGHT, 1.0)):
        env.reset()
        env.step({"name": "write", "arguments": {"path": "solution.py", "content": source}})
        env.step(POISONS["the interpreter"])
        env.step(POISONS["the tests"])
        assert env.step("python3 check.py")[4]["exit_code"] == 0
        _, got, terminated, _, info = env.step("submit")
        assert (got, terminated) == (reward, True), info
    env.close()

"""The environment, on real boxes."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import dsec
from dsec.gym import DSecEnv, Episode, Task
from dsec.gym._spaces import ActionSpace, TextSpace
from dsec.verify import Case, Verifier


def said_42(episode: Episode) -> float:
    return float("42" in episode.steps[-1].output)


TASK = Task("Print 42.", checker=said_42, spec={"mem_limit": "64Mi"})


def test_gymnasiums_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make("dsec.gym:DSec-v0", tasks=TASK, render_mode="ansi")
        check_env(env.unwrapped)
        env.close()


def test_turns() -> None:
    env = DSecEnv(TASK, render_mode="ansi", tools={"double": lambda episode, x: str(2 * x)})
    assert env.reset(seed=1) == ("Print 42.", {"steps": 0, "masked": False})
    observation, reward, terminated, truncated, info = env.step("cd /tmp; x=3; echo out; echo err >&2; false")
    assert (observation, reward, terminated, truncated) == ("out\nerr\n[exit code 1]\n", 0.0, False, False)
    assert info == {"steps": 1, "masked": False, "exit_code": 1, "timed_out": False, "oom": False}
    assert env.step("echo $PWD $x")[0] == "/tmp 3\n"
    assert env.step({"name": "write", "arguments": {"path": "a/b", "content": "hi"}})[0] == "[2 bytes written]\n"
    assert env.step({"function": {"name": "read", "arguments": '{"path": "a/b"}'}})[0] == "hi"
    assert env.step({"name": "double", "arguments": {"x": 21}})[0] == "42"
    for wrong in ("rm -rf /nowhere/x; exit 3", {"name": "nope"}, {"name": "read"}, {"name": "read", "arguments": "{"}, {"name": "read", "arguments": {"path": "/zz"}}, "a\0b"):
        observation, _, terminated, truncated, info = env.step(wrong)
        assert not (terminated or truncated or info["masked"]), (wrong, observation)
    assert env.step("echo $((6 * 7))")[0] == "42\n"
    observation, reward, terminated, truncated, info = env.step("submit")
    assert (reward, terminated, truncated) == (0.0, True, False)  # the last turn printed nothing
    text = env.render()
    assert text is not None and "$ echo $PWD $x\n/tmp 3\n" in text and text.startswith("Print 42.\n")
    session = env.session
    assert session is not None
    env.close()
    with dsec.Client() as client:
        assert client.session(session.id).refresh().phase == "COMPLETED"


def test_what_ends_an_episode() -> None:
    env = DSecEnv(TASK, max_steps=2, timeout=0.5)
    env.reset()
    assert env.step("echo 1")[1:4] == (0.0, False, False)
    assert env.step("echo 42")[1:4] == (1.0, False, True)  # truncated, and graded
    env.reset()
    observation, _, _, _, info = env.step("echo begun; sleep 60")
    assert observation == "begun\n[timed out after 0.5 s]\n" and info["timed_out"]
    env.close()
    env = DSecEnv(TASK, grade="step")
    env.reset()
    assert env.step("echo 41")[1:4] == (0.0, False, False)
    assert env.step("echo 42")[1:4] == (1.0, True, False)
    env.reset()
    observation, _, terminated, truncated, info = env.step("tail /dev/zero")
    assert info["oom"] and not info["masked"] and not terminated and not truncated, observation
    env.close()


def test_the_sessions_own_limit_truncates() -> None:
    env = DSecEnv(Task("", spec={"session": {"max_runtime_seconds": 2}}))
    env.reset()
    over = False
    for _ in range(40):
        _, reward, terminated, truncated, info = env.step("sleep 0.3")
        assert not terminated and not info["masked"]
        over = truncated
        if over:
            break
    assert over and reward == 0.0 and info["error"]["class"] == "limit"
    env.close()


def test_seeds_choose_tasks_and_reach_the_box() -> None:
    tasks = [Task(str(i)) for i in range(50)]
    env = DSecEnv(tasks)

    def played(seed: int | None, **options: object) -> tuple[str, str]:
        prompt, _ = env.reset(seed=seed, options=options)
        return prompt, env.step("echo $DSEC_SEED")[0]

    first = played(7)
    second = played(None)
    assert first == played(7) and second == played(None) and first != second
    assert played(8) != first
    assert played(1, task=3)[0] == "3"
    assert played(1, task=Task("mine"))[0] == "mine"
    env.close()


def test_the_platforms_failures_are_masked(wire: Any, wired: dsec.Client) -> None:
    env = DSecEnv(TASK, client=wired)
    env.reset()
    assert env.step("echo 1")[4]["masked"] is False
    wire.cut()
    observation, reward, terminated, truncated, info = env.step("echo 42")
    assert (observation, reward, terminated, truncated) == ("", 0.0, False, True)
    assert info["masked"] is True and info["error"]["class"] == "infrastructure"
    prompt, info = env.reset()  # nor is it the agent's fault that there is no box
    assert prompt == "Print 42." and info["masked"] is True
    assert env.step("echo 42")[1:4] == (0.0, False, True)
    wire.mend()
    env.reset()
    assert env.step("echo 42")[4]["masked"] is False
    env.reset()
    wire.cut()
    assert env.step("submit")[4]["masked"] is False  # this checker needs no server
    env.close()


def test_grading_that_fails_is_masked(wire: Any, wired: dsec.Client) -> None:
    verifier = Verifier(files=["a"], cases=[Case("cat a", stdout="x")])
    env = DSecEnv(Task("", checker=verifier), client=wired)
    env.reset()
    env.step({"name": "write", "arguments": {"path": "a", "content": "x"}})
    wire.cut()
    assert env.step("submit")[1:4] == (0.0, False, True)
    wire.mend()
    env.reset()
    env.step({"name": "write", "arguments": {"path": "a", "content": "x"}})
    assert env.step("submit")[1:4] == (1.0, True, False)
    env.close()


def test_an_agent_that_ends_its_box_is_to_blame() -> None:
    env = DSecEnv(Task("", checker=lambda e: float(e.session.exec("true").ok)))
    env.reset()
    assert env.session is not None
    env.session.stop()  # as if by the agent: no evidence of another's fault
    _, reward, terminated, _, info = env.step("echo 42")
    assert terminated and reward == 0.0 and not info["masked"]
    env.close()


def test_suspended_between_turns() -> None:
    env = DSecEnv(TASK)
    env.reset()
    env.step("x=5; sleep 1000 &")
    env.suspend()
    assert env.session is not None and env.session.refresh().phase == "SUSPENDED"
    assert env.step("echo $x")[0] == "5\n"
    env.close()


def test_spaces() -> None:
    text = TextSpace(10)
    assert "héé\n✨" in text and "x" * 11 not in text and 1 not in text
    assert all(text.sample() in text for _ in range(20))
    actions = ActionSpace(100)
    assert "ls" in actions and {"name": "x", "arguments": {}} in actions and {"nome": "x"} not in actions
    assert text == TextSpace(10) and text != TextSpace(11) and actions != TextSpace(100)
    with pytest.raises(ValueError):
        DSecEnv([])
    with pytest.raises(ValueError):
        DSecEnv(TASK, grade="sometimes")  # type: ignore[arg-type]

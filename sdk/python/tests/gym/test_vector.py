"""The vector environment, beside Gymnasium's own one over the same environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import dsec
from dsec.gym import DSecEnv, DSecVectorEnv, Episode, Task


def said_42(episode: Episode) -> float:
    return float("42" in episode.steps[-1].output)


TASKS = [Task(f"Print 42 ({i}).", checker=said_42, spec={"mem_limit": "64Mi"}) for i in range(5)]

#: What two agents do, turn by turn; the second submits, and both run into the limit.
TURNS = [("echo 1", "echo 42"), ("echo 42", "submit"), ("echo x; exit 3", "echo y"), ("echo $DSEC_SEED", "echo $DSEC_SEED"), ("echo 42", "echo 42")]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)) or (isinstance(a, np.ndarray) and a.dtype == object):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_as_gymnasiums_own(mode: AutoresetMode) -> None:
    with dsec.Client() as client:
        ours = DSecVectorEnv(TASKS, 2, client=client, max_steps=3, autoreset_mode=mode)
        theirs = SyncVectorEnv([lambda: DSecEnv(TASKS, client=client, max_steps=3)] * 2, autoreset_mode=mode)
        assert ours.metadata["autoreset_mode"] is mode
        assert ours.single_action_space == theirs.single_action_space
        assert ours.single_observation_space == theirs.single_observation_space
        a, b = ours.reset(seed=5), theirs.reset(seed=5)
        assert same(a, b), (a, b)
        for turn in TURNS:
            a, b = ours.step(turn), theirs.step(turn)
            assert same(a, b), (turn, a, b)
            assert a[0] in ours.observation_space
            over = a[2] | a[3]
            if mode is AutoresetMode.DISABLED and over.any():
                with pytest.raises(RuntimeError):
                    ours.step(turn)
                a = ours.reset(options={"reset_mask": over})
                b = theirs.reset(options={"reset_mask": over.copy()})
                assert same(a, b), (turn, a, b)
        ours.close()
        theirs.close()
        left = [s.id for s in client.list(lease_id=client.lease_id, phases=["RUNNING", "SUSPENDED"])]
        assert not left


def test_a_group_of_eight() -> None:
    envs = gymnasium.make_vec("dsec.gym:DSec-v0", num_envs=8, tasks=TASKS, render_mode="ansi", autoreset_mode="Disabled")
    observations, infos = envs.reset(seed=1, options={"task": 2})
    assert set(observations) == {"Print 42 (2)."} and not infos["masked"].any()
    observations, rewards, terminated, truncated, infos = envs.step([f"sleep 0.2; echo {40 + i}" for i in range(8)])
    assert observations == tuple(f"{40 + i}\n" for i in range(8)) and not (terminated | truncated).any()
    inner = envs.unwrapped
    inner.suspend()
    assert {s.refresh().phase for s in inner.sessions} == {"SUSPENDED"}
    envs.step(["echo 42"] * 4 + ["echo 1"] * 4)
    assert "$ echo 42\n42\n" in envs.render()[0]
    assert len(set(inner.sessions)) == 8
    envs.reset(options={"tasks": list(range(5)) + [TASKS[0]] * 3})
    assert inner.step(["submit"] * 8)[2].all()
    for wrong in (np.ones(7, dtype=np.bool_), np.zeros(8, dtype=np.bool_), [True] * 8):
        with pytest.raises((TypeError, ValueError)):
            inner.reset(options={"reset_mask": wrong})
    envs.close()
    envs.close()


def test_one_failure_spoils_no_other(wire: Any, wired: dsec.Client) -> None:
    envs = DSecVectorEnv(TASKS[0], 3, client=wired, autoreset_mode="Disabled")
    envs.reset()
    envs.sessions[0].stop()
    _, _, terminated, _, infos = envs.step(["echo 42"] * 3)
    assert terminated.tolist() == [True, False, False] and not infos["masked"].any()
    envs.reset(options={"reset_mask": terminated})
    wire.cut()
    _, rewards, _, truncated, infos = envs.step(["echo 42"] * 3)
    assert truncated.all() and infos["masked"].all() and not rewards.any()
    wire.mend()
    _, infos = envs.reset()
    assert not infos["masked"].any()
    envs.close()

#!/usr/bin/env python3
"""A toy of group-relative policy optimisation: the loop is real, the policy is four scripts.

Each task gets a group of eight rollouts in boxes of their own. A reward says whether the hidden
tests pass, in a fresh box that gets the agent's one file. The advantage of a rollout is its reward
beside those of its group; rollouts that the platform spoiled are left out. While the policy is
updated the boxes are suspended: they hold what they had and take no CPU.

    pip install './sdk/python[gym]'
    DSEC_URL=http://127.0.0.1:7070 DSEC_API_KEY=… python3 grpo.py --updates 12
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from policy import Policy
from tasks import TASKS

from dsec import Client
from dsec.gym import DSecVectorEnv

GROUP = 8


def advantages(rewards: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Gives each rollout's reward beside its group's; 0 for those that are no data."""
    counted = rewards[~masked]
    if counted.size < 2 or counted.std() == 0:
        return np.zeros_like(rewards)  # nothing to learn from
    return np.where(masked, 0.0, (rewards - counted.mean()) / counted.std())


def rollout(envs: DSecVectorEnv, policy: Policy, task: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Plays a group; gives what each chose, its reward, and whether it is no data."""
    observations, infos = envs.reset(seed=seed, options={"task": task})
    masked = infos["masked"].copy()
    chosen = policy.sample(GROUP)
    rewards = np.zeros(GROUP)
    over = np.zeros(GROUP, dtype=bool)
    for turn in range(policy.turns):
        if over.all():
            break
        actions = [policy.act(choice, turn, seen) for choice, seen in zip(chosen, observations, strict=True)]
        observations, got, terminated, truncated, infos = envs.step(actions)
        rewards = np.where(over, rewards, got)
        masked |= infos["masked"] & ~over
        ended = terminated | truncated
        over |= ended
        if ended.any() and not over.all():
            # The others go on; what these do in another box meanwhile is not counted.
            observations, _ = envs.reset(options={"reset_mask": ended, "task": task})
    return chosen, rewards, masked


def train(client: Client, updates: int, seed: int = 0, between: Callable[[int], None] | None = None) -> list[dict]:
    """Learns, and gives what became of each update. ``between`` is called while boxes are suspended."""
    policy = Policy(np.random.default_rng(seed))
    history = []
    # The caller decides when an episode begins, so that boxes wait through the update.
    envs = DSecVectorEnv(TASKS, GROUP, client=client, max_steps=8, autoreset_mode="Disabled")
    try:
        for update in range(updates):
            task = update % len(TASKS)
            chosen, rewards, masked = rollout(envs, policy, task, seed * 1000 + update)
            if not masked.all():
                envs.suspend()
            if between is not None:
                between(update)
            policy.update(chosen, advantages(rewards, masked))
            good = rewards[~masked].mean() if not masked.all() else float("nan")
            history.append({"update": update, "reward": float(good), "masked": int(masked.sum())})
            print(f"update {update:2}  task {TASKS[task].name:8}  reward {good:.2f}  masked {masked.sum()}  best {policy.best()}", flush=True)
    finally:
        envs.close()
    return history


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with Client() as client:
        history = train(client, args.updates, args.seed)
    first, last = history[0]["reward"], history[-1]["reward"]
    print(f"reward {first:.2f} -> {last:.2f}")


if __name__ == "__main__":
    main()

"""What the environment and the vector environment have in common: one seat at a table of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dsec import Client, DSecError

from ._episode import Action, Episode, Tool
from ._spaces import ActionSpace, TextSpace
from ._task import Task

Grade = Literal["end", "step"]

#: What a transition is in Gymnasium.
Transition = tuple[str, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True)
class Rules:
    """How episodes go. The arguments of the environments."""

    tasks: Sequence[Task]
    #: Turns until an episode is truncated; its work is graded then.
    max_steps: int = 50
    #: Seconds for each command.
    timeout: float = 30.0
    #: Characters of an observation, and bytes kept of each stream.
    max_output: int = 16 << 10
    #: "end": the reward comes with the end. "step": after every turn, and 1 ends the episode.
    grade: Grade = "end"
    tools: Mapping[str, Tool] | None = None

    @classmethod
    def of(cls, tasks: Task | Sequence[Task], **rules: Any) -> Rules:
        """Checks what an environment is given."""
        these = (tasks,) if isinstance(tasks, Task) else tuple(tasks)
        if not these:
            raise ValueError("there must be a task")
        made = cls(these, **rules)
        if made.max_steps < 1 or made.timeout <= 0 or made.max_output < 1:
            raise ValueError("max_steps, timeout and max_output must be positive")
        if made.grade not in ("end", "step"):
            raise ValueError(f'grade is "end" or "step", not {made.grade!r}')
        return made

    def observation_space(self) -> TextSpace:
        """Prompts, and what commands print."""
        longest = max(len(t.prompt) for t in self.tasks)
        return TextSpace(max(longest, self.max_output))

    def action_space(self) -> ActionSpace:
        """Commands and tool calls."""
        return ActionSpace(768 << 10)

    def choose(self, rng: np.random.Generator, options: Mapping[str, Any]) -> tuple[Task, int]:
        """Gives the task and the seed of an episode."""
        seed = int(rng.integers(2**31))
        chosen = options.get("task")
        if isinstance(chosen, Task):
            return chosen, seed
        if chosen is not None:
            return self.tasks[int(chosen)], seed
        if len(self.tasks) == 1:
            return self.tasks[0], seed
        return self.tasks[int(rng.integers(len(self.tasks)))], seed


class Seat:
    """Plays episodes one after the other, each in a box of its own, which is never used again."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.episode: Episode | None = None
        #: Why there is no episode although one was begun, or no more of it.
        self.failure: DSecError | None = None

    def reset(self, client: Client, task: Task, seed: int) -> tuple[str, dict[str, Any]]:
        """Begins an episode. When the platform cannot, the episode is masked and ends with its first turn."""
        self.close()
        self.failure = None
        rules = self.rules
        try:
            self.episode = Episode.begin(client, task, seed, rules.timeout, rules.max_output)
        except DSecError as e:
            if not _masked(e):
                raise  # the task is wrong, or too much is asked of this server
            self.failure = e
        return task.prompt, self._info(0, None)

    def step(self, action: Action) -> Transition:
        """Takes a turn."""
        if self.failure is not None:
            return self._masked(self.failure)
        episode = self.episode
        if episode is None:
            raise RuntimeError("call reset before step")
        rules = self.rules
        try:
            step = episode.act(action, rules.tools or {})
            terminated = episode.submitted or _gone(step.error)
            truncated = not terminated and (
                len(episode.steps) >= rules.max_steps or _time_is_over(step.error)
            )
            reward = 0.0
            if rules.grade == "step" or terminated or truncated:
                reward = episode.grade()
            if rules.grade == "step" and reward >= 1.0:
                terminated, truncated = True, False
        except DSecError as e:  # only what is not the agent's fault comes here
            if not _masked(e):
                raise  # the verifier is wrong
            self.failure = e
            return self._masked(e)
        info = self._info(len(episode.steps), step.error)
        if step.result is not None:
            info["exit_code"] = step.result.exit_code
            info["timed_out"] = step.result.timed_out
            info["oom"] = step.result.oom
        if episode.verdict is not None and (terminated or truncated):
            info["verdict"] = episode.verdict.reason
        return _shown(step.output, rules.max_output), reward, terminated, truncated, info

    def _masked(self, failure: DSecError) -> Transition:
        steps = len(self.episode.steps) if self.episode is not None else 0
        return "", 0.0, False, True, self._info(steps, failure)

    def _info(self, steps: int, error: DSecError | None) -> dict[str, Any]:
        error = self.failure or error
        info: dict[str, Any] = {"steps": steps, "masked": self.failure is not None}
        if error is not None:
            info["error"] = {
                "class": error.error_class, "reason": error.reason, "message": str(error)
            }
        return info

    def render(self) -> str:
        """Gives the episode as text."""
        return self.episode.render() if self.episode is not None else ""

    def close(self) -> None:
        """Stops the box, if there is one. That the platform cannot be reached is left to the lease."""
        episode, self.episode = self.episode, None
        if episode is None:
            return
        try:
            episode.end()
        except DSecError as e:
            if e.error_class != "infrastructure":
                raise


def _masked(error: DSecError) -> bool:
    """Whether it is the platform's: it failed, or is too full for now."""
    return error.error_class == "infrastructure" or error.retryable


def _gone(error: DSecError | None) -> bool:
    """Whether the agent has ended its own box."""
    return error is not None and error.reason in ("box_gone", "box_tampered")


def _time_is_over(error: DSecError | None) -> bool:
    """Whether the session has run for as long as it may."""
    return error is not None and error.error_class == "limit" and error.reason == "timed_out"


def _shown(text: str, most: int) -> str:
    """Keeps begin and end of a text that is too long to be an observation."""
    if len(text) <= most:
        return text
    mark = "\n[…]\n"
    half = max(0, most - len(mark)) // 2
    return (text[:half] + mark + text[len(text) - half :])[:most]

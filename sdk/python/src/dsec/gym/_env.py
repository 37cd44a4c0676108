"""The environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from dsec import Client, Session

from ._core import Grade, Rules, Seat
from ._episode import Action, Episode, Tool
from ._task import Task


class DSecEnv(gymnasium.Env[str, Action]):
    """Episodes in boxes, each in a fresh one.

    An action is a command for the agent's shell, which keeps its directory and variables from turn
    to turn, or a tool call: ``{"name": "write", "arguments": {"path": …, "content": …}}``. There are
    ``exec``, ``read``, ``write`` and ``submit``, and those of ``tools``, which get the :class:`Episode`. The
    command ``submit`` ends the episode too. An observation is the task's prompt, then what was printed.

    ``reset(seed=…)`` with the same seed gives the same task and the same DSEC_SEED in the box;
    ``options={"task": …}`` names the task, by its place or itself.

    After ``max_steps`` the episode is truncated and its work graded. When the platform fails the
    episode is truncated at once, with reward 0 and ``info["masked"]``: leave it out of the update.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        tasks: Task | Sequence[Task],
        *,
        client: Client | None = None,
        max_steps: int = 50,
        timeout: float = 30.0,
        max_output: int = 16 << 10,
        grade: Grade = "end",
        tools: Mapping[str, Tool] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode is None or "ansi", not {render_mode!r}')
        self.render_mode = render_mode
        self.rules = Rules.of(
            tasks, max_steps=max_steps, timeout=timeout, max_output=max_output, grade=grade, tools=tools
        )
        self.observation_space = self.rules.observation_space()
        self.action_space = self.rules.action_space()
        self._seat = Seat(self.rules)
        self._client = client
        self._own = client is None

    @property
    def episode(self) -> Episode | None:
        """The episode that is played: its session, its turns, its verdict."""
        return self._seat.episode

    @property
    def session(self) -> Session | None:
        """The session of the episode."""
        return self._seat.episode.session if self._seat.episode is not None else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begins an episode in a fresh box; the last one's is stopped."""
        super().reset(seed=seed)
        task, box_seed = self.rules.choose(self.np_random, options or {})
        if self._client is None:
            self._client = Client()
        return self._seat.reset(self._client, task, box_seed)

    def step(self, action: Action) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes a turn."""
        return self._seat.step(action)

    def render(self) -> str | None:
        """Gives the episode as a terminal would have shown it."""
        return self._seat.render() if self.render_mode == "ansi" else None

    def suspend(self) -> None:
        """Freezes the box, while a policy is updated. The next turn thaws it."""
        if self.session is not None:
            self.session.suspend()

    def resume(self) -> None:
        """Thaws the box ahead of the next turn."""
        if self.session is not None:
            self.session.resume()

    def close(self) -> None:
        """Stops the box, and closes the client unless it was given."""
        self._seat.close()
        if self._own and self._client is not None:
            self._client.close()
            self._client = None

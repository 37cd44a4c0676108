"""Many episodes at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from dsec import Client, Session

from ._core import Grade, Rules, Seat, Transition
from ._episode import Action, Episode, Tool
from ._task import Task

T = TypeVar("T")
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


class DSecVectorEnv(VectorEnv[tuple[str, ...], Sequence[Action], Any]):
    """``num_envs`` environments as :class:`dsec.gym.DSecEnv`, whose turns run at the same time.

    Observations and actions are tuples, one item each. ``autoreset_mode`` is that of Gymnasium: in the
    next step (the action is then not used), in the same step (with ``final_obs`` and ``final_info``), or
    by the caller, with ``options={"reset_mask": …}``.

    ``reset(seed=…)`` seeds the i-th with ``seed + i``, or each with its own of a list.
    ``options={"task": …}`` gives all of them one task, as a group of rollouts wants;
    ``options={"tasks": […]}`` gives each its own.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        tasks: Task | Sequence[Task],
        num_envs: int = 8,
        *,
        client: Client | None = None,
        max_steps: int = 50,
        timeout: float = 30.0,
        max_output: int = 16 << 10,
        grade: Grade = "end",
        tools: Mapping[str, Tool] | None = None,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if num_envs < 1:
            raise ValueError("num_envs must be positive")
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode is None or "ansi", not {render_mode!r}')
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.rules = Rules.of(
            tasks, max_steps=max_steps, timeout=timeout, max_output=max_output, grade=grade, tools=tools
        )
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.rules.observation_space()
        self.single_action_space = self.rules.action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seats = [Seat(self.rules) for _ in range(num_envs)]
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]
        self._observations = [""] * num_envs
        self._over = np.zeros(num_envs, dtype=np.bool_)
        self._options: list[Mapping[str, Any]] = [{}] * num_envs
        self._client = client
        self._own = client is None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def episodes(self) -> tuple[Episode | None, ...]:
        """The episodes that are played."""
        return tuple(seat.episode for seat in self._seats)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions of the episodes that have one."""
        return tuple(e.session for e in self.episodes if e is not None)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Begins episodes, in all or in those of ``reset_mask``."""
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None))
        seeds = self._seeds(seed)
        each = self._each(options)
        places: list[int] = np.flatnonzero(mask).tolist()
        for at in places:
            if seeds[at] is not None:
                self._rngs[at] = np.random.default_rng(seeds[at])
            self._options[at] = each[at]
        done = self._all(self._begin, places)
        infos: dict[str, Any] = {}
        for at, (observation, info) in done.items():
            self._observations[at] = observation
            self._over[at] = False
            infos = self._add_info(infos, info, at)
        return tuple(self._observations), infos

    def step(
        self, actions: Sequence[Action]
    ) -> tuple[tuple[str, ...], _Floats, _Bools, _Bools, dict[str, Any]]:
        """Takes a turn in each."""
        if len(actions) != self.num_envs:
            raise ValueError(f"there are {len(actions)} actions for {self.num_envs} environments")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._over.any():
            ended = np.flatnonzero(self._over).tolist()
            raise RuntimeError(f"the episodes of {ended} have ended: reset them with a reset_mask")

        def turn(at: int) -> tuple[Transition, tuple[str, dict[str, Any]] | None]:
            if self._over[at]:  # of the step before
                observation, info = self._begin(at)
                return (observation, 0.0, False, False, info), None
            taken = self._seats[at].step(actions[at])
            ended = taken[2] or taken[3]
            if ended and self.autoreset_mode is AutoresetMode.SAME_STEP:
                return taken, self._begin(at)
            return taken, None

        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        for at, (taken, begun) in self._all(turn, range(self.num_envs)).items():
            observation, rewards[at], terminated[at], truncated[at], info = taken
            if begun is not None:
                infos = self._add_info(infos, {"final_obs": observation, "final_info": info}, at)
                observation, info = begun
            infos = self._add_info(infos, info, at)
            self._observations[at] = observation
        self._over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            self._over = np.zeros(self.num_envs, dtype=np.bool_)
        return tuple(self._observations), rewards, terminated, truncated, infos

    def render(self) -> tuple[str, ...] | None:
        """Gives the episodes as terminals would have shown them."""
        return tuple(s.render() for s in self._seats) if self.render_mode == "ansi" else None

    def suspend(self) -> None:
        """Freezes the boxes, while a policy is updated. The next turn thaws them."""
        self._change("suspend")

    def resume(self) -> None:
        """Thaws the boxes ahead of the next turn."""
        self._change("resume")

    def _change(self, what: str) -> None:
        ids = [s.id for s in self.sessions]
        if ids and self._client is not None:
            # One that is gone says so at its next turn.
            getattr(self._client, what)(ids=ids)

    def close_extras(self, **_kwargs: Any) -> None:
        """Stops the boxes, and closes the client unless it was given."""
        self._all(lambda at: self._seats[at].close(), range(self.num_envs))
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        if self._own and self._client is not None:
            self._client.close()
            self._client = None

    def _begin(self, at: int) -> tuple[str, dict[str, Any]]:
        assert self._client is not None
        task, seed = self.rules.choose(self._rngs[at], self._options[at])
        return self._seats[at].reset(self._client, task, seed)

    def _all(self, call: Callable[[int], T], places: Sequence[int]) -> dict[int, T]:
        """Does something for each, all at the same time."""
        if self._client is None:
            self._client = Client()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.num_envs, "dsec-gym")
        return dict(zip(places, self._threads.map(call, places), strict=True))

    def _mask(self, mask: Any) -> _Bools:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise TypeError(f"reset_mask is an array of {self.num_envs} bools")
        if not mask.any():
            raise ValueError("reset_mask chooses none")
        return mask

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            super().reset(seed=int(seed))
            return [int(seed) + at for at in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"there are {len(seed)} seeds for {self.num_envs} environments")
        return seed

    def _each(self, options: dict[str, Any]) -> list[Mapping[str, Any]]:
        tasks = options.pop("tasks", None)
        if tasks is None:
            return [options] * self.num_envs
        if len(tasks) != self.num_envs:
            raise ValueError(f"there are {len(tasks)} tasks for {self.num_envs} environments")
        return [{**options, "task": task} for task in tasks]

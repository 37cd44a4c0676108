"""What an agent is asked to do, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Union

from dsec.verify import Verifier

if TYPE_CHECKING:
    from ._episode import Episode

#: Gives the reward of an episode: a function of it, or what grades its files in a fresh box.
Checker = Union[Callable[["Episode"], float], Verifier]


@dataclass(frozen=True)
class Task:
    """One task: its box, its words, its judge."""

    #: The first observation.
    prompt: str = ""
    #: None: the reward is always 0.
    checker: Checker | None = None
    name: str = ""
    template: str = ""
    spec: Mapping[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    #: A tar for /workspace.
    code: bytes | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    #: A script that is run before the agent's first turn; it must succeed.
    setup: str = ""
    #: Who the agent is in its box; empty: the session's user.
    user: str = ""

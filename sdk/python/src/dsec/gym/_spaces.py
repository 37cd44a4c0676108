"""Spaces of text as shells have it: any character, not only those of a small set."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

#: Samples are made of these; they are commands of no sense, which is what a sample of commands is.
_SAMPLED = string.ascii_letters + string.digits + " ./-_"
_LONGEST_SAMPLE = 64


class TextSpace(spaces.Text):
    """Strings of Unicode to a length. ``charset`` is what samples are made of, no bound."""

    def __init__(self, max_length: int, *, min_length: int = 0, seed: Any = None) -> None:
        super().__init__(max_length, min_length=min_length, charset=_SAMPLED, seed=seed)

    def contains(self, x: Any) -> bool:
        """Whether it is text of an allowed length."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Gives a short text."""
        if mask is None and probability is None:
            longest = max(self.min_length, min(self.max_length, _LONGEST_SAMPLE))
            length = int(self.np_random.integers(self.min_length, longest + 1))
            mask = (length, np.ones(len(_SAMPLED), dtype=np.int8))
        return super().sample(mask, probability)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.min_length}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is type(self)
            and isinstance(other, TextSpace)
            and (self.min_length, self.max_length) == (other.min_length, other.max_length)
        )


class ActionSpace(TextSpace):
    """Commands for a shell, and tool calls: ``{"name": …, "arguments": {…}}``, with arguments as a
    mapping or as its JSON. Samples are commands."""

    def contains(self, x: Any) -> bool:
        """Whether it is a command or has the form of a tool call."""
        if isinstance(x, Mapping):
            call = x.get("function", x)
            return (
                isinstance(call, Mapping)
                and isinstance(call.get("name"), str)
                and isinstance(call.get("arguments", {}), (Mapping, str))
            )
        return super().contains(x)

"""What a forked child must not share with its parent."""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol


class Forkable(Protocol):
    """Something that holds sockets, threads or a lease."""

    def after_fork(self) -> None:
        """Begins anew, in the child, without touching what is the parent's."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()
_forgotten: list[object] = []


def on_fork(thing: Forkable) -> None:
    """Has ``thing.after_fork`` called in children, as long as it lives."""
    _known.add(thing)


def forget(thing: object) -> None:
    """Keeps what is the parent's from being closed when it is not used any more."""
    _forgotten.append(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

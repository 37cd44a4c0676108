"""Local files, for threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

T = TypeVar("T")

_PIECE = 1 << 20


def in_thread(call: Callable[..., T], *args: Any) -> T:
    """Does something that blocks, where it stands."""
    return call(*args)


def load(source: str | os.PathLike[str] | IO[bytes]) -> Iterator[bytes]:
    """Reads a local file bit by bit."""
    file: IO[bytes] = (
        open(source, "rb") if isinstance(source, (str, os.PathLike)) else source
    )
    try:
        while data := file.read(_PIECE):
            yield data
    finally:
        if file is not source:
            file.close()


def save(to: str | os.PathLike[str], chunks: Iterator[bytes]) -> None:
    """Writes a local file bit by bit."""
    file: IO[bytes] | None = None
    try:
        for data in chunks:
            if file is None:
                file = open(to, "wb")
            file.write(data)
        if file is None:  # empty
            file = open(to, "wb")
    finally:
        if file is not None:
            file.close()

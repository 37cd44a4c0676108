"""Local files, without blocking the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import IO, Any, TypeVar

T = TypeVar("T")

_PIECE = 1 << 20


async def in_thread(call: Callable[..., T], *args: Any) -> T:
    """Has something done that blocks."""
    return await asyncio.to_thread(call, *args)


async def load(source: str | os.PathLike[str] | IO[bytes]) -> AsyncIterator[bytes]:
    """Reads a local file bit by bit."""
    file: IO[bytes]
    if isinstance(source, (str, os.PathLike)):
        file = await asyncio.to_thread(open, source, "rb")
    else:
        file = source
    try:
        while data := await asyncio.to_thread(file.read, _PIECE):
            yield data
    finally:
        if file is not source:
            file.close()


async def save(to: str | os.PathLike[str], chunks: AsyncIterator[bytes]) -> None:
    """Writes a local file bit by bit."""
    file: IO[bytes] | None = None
    try:
        async for data in chunks:
            if file is None:
                file = await asyncio.to_thread(open, to, "wb")
            await asyncio.to_thread(file.write, data)
        if file is None:  # empty
            file = await asyncio.to_thread(open, to, "wb")
    finally:
        if file is not None:
            file.close()

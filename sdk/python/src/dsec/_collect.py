"""Files of a box that is not trusted, taken out as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ._blame import blame, settle
from .errors import DSecError

#: The most that all named files may have together.
MAX_BYTES = 16 << 20


@dataclass
class Taken:
    """What came out, and what did not and why."""

    data: dict[str, bytes] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


async def collect(session: Any, paths: Sequence[str], max_bytes: int = MAX_BYTES) -> Taken:
    """Reads regular files of a box, ``max_bytes`` in all.

    Only content is taken: no mode, owner or link. What a name leads to is decided
    inside the box, where it can reach nothing that is not the agent's; links at the end
    are refused all the same, so that a file is what its name says.
    """
    taken = Taken()
    room = max_bytes
    for path in paths:
        try:
            info = await settle(session.files.stat(path, follow=False))
            if info.type != "file":
                taken.refused[path] = f"it is no regular file ({info.type or 'unknown'})"
                continue
            data = await _read(session, path, room) if info.size <= room else None
        except DSecError as e:
            why = await blame(session, e)
            if why.error_class == "infrastructure":
                raise why from e
            taken.refused[path] = str(why)
            continue
        if data is None:
            taken.refused[path] = f"it is larger than the {max_bytes} bytes that all may have"
            continue
        room -= len(data)
        taken.data[path] = data
    return taken


async def _read(session: Any, path: str, room: int) -> bytes | None:
    """Reads a file that may grow while it is read; None: it has more than ``room``."""
    data = bytearray()
    chunks = session.files.stream(path)
    if hasattr(chunks, "__aiter__"):
        try:
            async for chunk in chunks:
                data += chunk
                if len(data) > room:
                    return None
        finally:
            await chunks.aclose()
        return bytes(data)
    try:
        for chunk in chunks:
            data += chunk
            if len(data) > room:
                return None
    finally:
        chunks.close()
    return bytes(data)

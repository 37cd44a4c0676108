"""Messages with megabytes of bytes in them, read and written piece by piece.

One call of the JSON or base64 library holds up every other task of an event loop until it
returns. What is large in a message is bytes, and those are one base64 string each: they are
lifted out of the message's text before it is read, and put into it after it was written.
Nothing here does I/O; who reads or writes lets others come between the steps.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from typing import Any

from . import _wire

#: Bytes of text from which a string is lifted out. A multiple of 4, as base64's groups are.
LONG = 128 << 10

#: Bytes of text of one step; it takes a millisecond or two.
STEP = 1 << 20


class Lifted(str):
    """A string of a message whose bytes are known already. A reader of text sees the text."""

    raw: bytes


def reading(data: bytes) -> Iterator[_wire.Message | None]:
    """Reads a message: None after each step, the message at the end."""
    mark = secrets.token_hex(8)  # no string of a box is one of these
    lifted: dict[str, Lifted] = {}
    parts: list[bytes] = []
    at = 0
    for begin, end in _strings(data):
        pieces: list[bytes] = []
        try:
            for piece in range(begin, end, STEP):
                pieces.append(b64decode(data[piece : min(piece + STEP, end)], validate=True))
                yield None
            text = Lifted(data[begin:end], "ascii")
        except ValueError:
            continue  # it is no bytes field
        yield None
        text.raw = b"".join(pieces)
        name = f"{mark}{len(lifted)}"
        lifted[name] = text
        parts += (data[at:begin], name.encode())
        at = end
        yield None
    if not lifted:
        yield _wire.decode(data)
        return
    parts.append(data[at:])
    message: _wire.Message = _put_back(_wire.decode(b"".join(parts)), lifted)
    yield message


def _strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Finds the strings without escapes that have at least LONG bytes: each covers a probe."""
    at = LONG // 2
    while at < len(data):
        begin = data.rfind(b'"', max(at - LONG // 2, 0), at) + 1
        if not begin or data[begin - 2 : begin - 1] == b"\\":
            at += LONG // 2
            continue
        end = data.find(b'"', at)
        if end - begin >= LONG and data.find(b"\\", begin, end) < 0:
            yield begin, end
            at = end
        at = max(at + LONG // 2, end)


def _put_back(value: Any, lifted: Mapping[str, Lifted]) -> Any:
    if isinstance(value, str):
        return lifted.get(value, value)
    if isinstance(value, dict):
        return {k: _put_back(v, lifted) for k, v in value.items()}
    if isinstance(value, list):
        return [_put_back(v, lifted) for v in value]
    return value


def writing(message: Mapping[str, Any]) -> Iterator[bytes | None]:
    """Writes a message, whose bytes fields may be bytes: None after each step, the text at the end."""
    mark = secrets.token_hex(8)
    blobs: list[bytes] = []

    def lift(value: object) -> str:
        if not isinstance(value, bytes):
            raise TypeError(f"{type(value).__name__} cannot be in a message")
        blobs.append(value)
        return f"{mark}{len(blobs) - 1}."

    text = json.dumps(message, separators=(",", ":"), default=lift).encode()
    if not blobs:
        yield text
        return
    parts: list[bytes] = []
    for i, blob in enumerate(blobs):
        before, text = text.split(f"{mark}{i}.".encode(), 1)
        parts.append(before)
        for at in range(0, len(blob), STEP // 4 * 3):
            parts.append(b64encode(blob[at : at + STEP // 4 * 3]))
            if len(blob) > STEP // 4 * 3:
                yield None
    parts.append(text)
    yield b"".join(parts)

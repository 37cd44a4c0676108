"""The wire: JSON messages, frames of streams, errors. Nothing here does I/O."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, cast

from .errors import DSecError, InfrastructureError, from_wire

Message = dict[str, Any]

JSON = "application/json"
STREAM = "application/connect+json"
_END = 2
_MAX_FRAME = 256 << 20


def encode(message: Mapping[str, Any]) -> bytes:
    """Writes a message without large bytes fields."""
    return json.dumps(message, separators=(",", ":")).encode()


def decode(data: bytes) -> Message:
    """Reads a message; anything else is an infrastructure failure."""
    try:
        message = json.loads(data)
    except ValueError:
        message = None
    if not isinstance(message, dict):
        raise InfrastructureError(
            "the answer is not a message", remedy="check that the URL names a DSec server"
        )
    return cast(Message, message)


def frame(data: bytes) -> bytes:
    """Makes a written message the one of a stream's request."""
    return struct.pack(">BI", 0, len(data)) + data


class Frames:
    """Cuts a stream's bytes into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: Set when the server has said that the stream is whole.
        self.ended = False

    def feed(self, data: bytes) -> Iterator[Message]:
        """Gives the messages that are whole. An error at the end of the stream is raised."""
        self._buffer += data
        at = 0
        try:
            while not self.ended and len(self._buffer) - at >= 5:
                flags, size = struct.unpack_from(">BI", self._buffer, at)
                if size > _MAX_FRAME or flags & ~_END:
                    raise InfrastructureError("the stream is not one of messages")
                if len(self._buffer) - at - 5 < size:
                    break
                message = decode(bytes(self._buffer[at + 5 : at + 5 + size]))
                at += 5 + size
                if flags & _END:
                    self.ended = True
                    if "error" in message:
                        raise error_of(cast(Message, message["error"]))
                else:
                    yield message
        finally:
            del self._buffer[:at]


def error_of(body: Mapping[str, Any], retry_after: float | None = None) -> DSecError:
    """Gives the error in a failed call's body."""
    details = cast("list[Message]", body.get("details") or [])
    for detail in details:
        debug = detail.get("debug")
        if detail.get("type") == "dsec.v1.Error" and isinstance(debug, dict):
            return from_wire(cast(Message, debug), retry_after)
    return InfrastructureError(
        str(body.get("message") or body.get("code") or "the server failed"),
        remedy="check that the URL names a DSec server",
        retry_after=retry_after,
    )


def response_error(status: int, data: bytes, retry_after: str | None) -> DSecError:
    """Gives the error of an answer whose status is not a success."""
    after: float | None = None
    if retry_after and re.fullmatch(r"\d{1,6}", retry_after.strip()):
        after = float(retry_after)
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if isinstance(body, dict) and body:
        return error_of(cast(Message, body), after)
    return InfrastructureError(
        f"the server answered {status}",
        reason="unavailable" if status in (502, 503, 504) else "internal",
        remedy="check that the URL names a DSec server",
        retryable=status >= 500 or status == 429,
        retry_after=after,
    )


def to_bytes(text: Any) -> bytes:
    """Reads a bytes field; that of a large one was done before."""
    raw = getattr(text, "raw", None)
    if isinstance(raw, bytes):
        return raw
    return b64decode(text) if text else b""


def from_bytes(data: bytes) -> str:
    """Writes a bytes field."""
    return b64encode(data).decode()


def text_field(message: Message, name: str, value: str | bytes) -> None:
    """Sets a text field, or its twin for what is not UTF-8."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            message[name + "_bytes"] = from_bytes(value)  # type: ignore[arg-type]
            return
    try:
        value.encode()
        message[name] = value
    except UnicodeEncodeError:  # surrogates: a name that the file system gave
        message[name + "_bytes"] = from_bytes(value.encode(errors="surrogateescape"))


def field_text(message: Mapping[str, Any], name: str) -> str:
    """Reads a text field or its twin; what is not UTF-8 becomes surrogates, as in ``os.fsdecode``."""
    twin = message.get(name + "_bytes")
    if twin:
        return b64decode(twin).decode(errors="surrogateescape")
    return str(message.get(name, ""))


_TIME = re.compile(r"(\d+-\d+-\d+T\d+:\d+:\d+)(?:\.(\d+))?Z")


def time_field(message: Mapping[str, Any], name: str) -> datetime | None:
    """Reads a time; None for one that never came."""
    found = _TIME.fullmatch(str(message.get(name, "")))
    if not found:
        return None
    at = datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return at.replace(microsecond=int((found[2] or "").ljust(6, "0")[:6]))

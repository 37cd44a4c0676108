# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""Calls, streams and their repetition."""

from __future__ import annotations

from collections.abc import Iterator, Callable, Mapping
from typing import Any, TypeVar

from .. import _bulk, _wire
from .._config import Config
from .._io import blocking
from .._retry import Lost, Retry
from ..errors import DSecError

T = TypeVar("T")

_JSON = {"Content-Type": _wire.JSON}
_STREAM = {"Content-Type": _wire.STREAM, "Connect-Protocol-Version": "1"}

#: Seconds after which a call that should be quick is given up.
QUICK = 60.0

#: Seconds for which a server that never answered is asked again: the URL is probably wrong.
FIRST_CONTACT = 3.0


class Rpc:
    """The wire of one server."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.transport = blocking.Transport(config)
        self._met = False

    def call(
        self,
        method: str,
        message: Mapping[str, Any],
        *,
        safe: bool = True,
        timeout: float | None = QUICK,
    ) -> _wire.Message:
        """Makes a call, again if need be; ``safe`` says that repeating it has no second effect."""
        body = self._write(message)

        def once() -> _wire.Message:
            return self._read(self._post(method, body, timeout))

        return self.retry(once, safe)

    def once(
        self, method: str, message: Mapping[str, Any], timeout: float
    ) -> _wire.Message:
        """Makes a call that is not repeated, whatever becomes of it."""
        return self._read(self._post(method, self._write(message), timeout))

    def _post(self, method: str, body: bytes, timeout: float | None) -> bytes:
        answer = self.transport.request("POST", "/dsec.v1." + method, _JSON, body, timeout)
        if answer.status != 200:
            raise _wire.response_error(
                answer.status, answer.data, answer.headers.get("Retry-After")
            )
        return answer.data

    def _write(self, message: Mapping[str, Any]) -> bytes:
        for text in _bulk.writing(message):
            if text is not None:
                return text
            blocking.sleep(0)  # others come first
        raise AssertionError("the last step gives the text")

    def _read(self, data: bytes) -> _wire.Message:
        for message in _bulk.reading(data):
            if message is not None:
                return message
            blocking.sleep(0)  # others come first
        raise AssertionError("the last step gives the message")

    def retry(self, call: Callable[[], T], safe: bool) -> T:
        """Makes a call until it succeeds, or repeating it is unsafe, useless or too late."""
        attempts: Retry | None = None
        while True:
            try:
                value = call()
                self._met = True
                return value
            except DSecError as e:
                if attempts is None:
                    attempts = self.attempts(safe)
                pause = attempts.after(e, blocking.now())
                if pause is None:
                    raise
            blocking.sleep(pause)

    def attempts(self, safe: bool = True) -> Retry:
        """Gives the attempts that a call has after its first failure."""
        budget = self.config.retry_for
        return Retry(budget if self._met else min(budget, FIRST_CONTACT), blocking.now(), safe)

    def stream(self, method: str, message: Mapping[str, Any]) -> Messages:
        """Begins a stream of messages; it is not repeated."""
        body = _wire.frame(self._write(message))
        opened = self.transport.open("POST", "/dsec.v1." + method, _STREAM, body)
        return Messages(opened)

    def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: blocking.Body = None,
        timeout: float | None = None,
    ) -> blocking.Stream:
        """Makes one plain request whose answer is a success, and comes bit by bit."""
        stream = self.transport.open(method, target, headers or {}, body, timeout)
        if stream.status < 300:
            return stream
        try:
            data = stream.read()
        finally:
            stream.close()
        raise _wire.response_error(stream.status, data, stream.headers.get("Retry-After"))


class Messages:
    """The messages of a stream; close it."""

    def __init__(self, stream: blocking.Stream) -> None:
        self._stream = stream

    def messages(self) -> Iterator[_wire.Message]:
        """Gives the messages as they come, and ends when the server has said that it was all."""
        if self._stream.status != 200:
            raise _wire.response_error(
                self._stream.status,
                self._stream.read(),
                self._stream.headers.get("Retry-After"),
            )
        frames = _wire.Frames()
        for data in self._stream.chunks():
            for message in frames.feed(data):
                yield message
        if not frames.ended:
            raise Lost("the stream broke off", reason="unavailable", retryable=True)

    def close(self) -> None:
        """Ends it."""
        self._stream.close()

"""Calls, streams and their repetition."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

from .. import _bulk, _wire
from .._config import Config
from .._io import aio
from .._retry import Lost, Retry
from ..errors import DSecError

T = TypeVar("T")

_JSON = {"Content-Type": _wire.JSON}
_STREAM = {"Content-Type": _wire.STREAM, "Connect-Protocol-Version": "1"}

#: Seconds after which a call that should be quick is given up.
QUICK = 60.0

#: Seconds for which a server that never answered is asked again: the URL is probably wrong.
FIRST_CONTACT = 3.0


class AsyncRpc:
    """The wire of one server."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.transport = aio.Transport(config)
        self._met = False

    async def call(
        self,
        method: str,
        message: Mapping[str, Any],
        *,
        safe: bool = True,
        timeout: float | None = QUICK,
    ) -> _wire.Message:
        """Makes a call, again if need be; ``safe`` says that repeating it has no second effect."""
        body = await self._write(message)

        async def once() -> _wire.Message:
            return await self._read(await self._post(method, body, timeout))

        return await self.retry(once, safe)

    async def once(
        self, method: str, message: Mapping[str, Any], timeout: float
    ) -> _wire.Message:
        """Makes a call that is not repeated, whatever becomes of it."""
        return await self._read(await self._post(method, await self._write(message), timeout))

    async def _post(self, method: str, body: bytes, timeout: float | None) -> bytes:
        answer = await self.transport.request("POST", "/dsec.v1." + method, _JSON, body, timeout)
        if answer.status != 200:
            raise _wire.response_error(
                answer.status, answer.data, answer.headers.get("Retry-After")
            )
        return answer.data

    async def _write(self, message: Mapping[str, Any]) -> bytes:
        for text in _bulk.writing(message):
            if text is not None:
                return text
            await aio.sleep(0)  # others on the loop come first
        raise AssertionError("the last step gives the text")

    async def _read(self, data: bytes) -> _wire.Message:
        for message in _bulk.reading(data):
            if message is not None:
                return message
            await aio.sleep(0)  # others on the loop come first
        raise AssertionError("the last step gives the message")

    async def retry(self, call: Callable[[], Awaitable[T]], safe: bool) -> T:
        """Makes a call until it succeeds, or repeating it is unsafe, useless or too late."""
        attempts: Retry | None = None
        while True:
            try:
                value = await call()
                self._met = True
                return value
            except DSecError as e:
                if attempts is None:
                    attempts = self.attempts(safe)
                pause = attempts.after(e, aio.now())
                if pause is None:
                    raise
            await aio.sleep(pause)

    def attempts(self, safe: bool = True) -> Retry:
        """Gives the attempts that a call has after its first failure."""
        budget = self.config.retry_for
        return Retry(budget if self._met else min(budget, FIRST_CONTACT), aio.now(), safe)

    async def stream(self, method: str, message: Mapping[str, Any]) -> AsyncMessages:
        """Begins a stream of messages; it is not repeated."""
        body = _wire.frame(await self._write(message))
        opened = await self.transport.open("POST", "/dsec.v1." + method, _STREAM, body)
        return AsyncMessages(opened)

    async def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: aio.Body = None,
        timeout: float | None = None,
    ) -> aio.Stream:
        """Makes one plain request whose answer is a success, and comes bit by bit."""
        stream = await self.transport.open(method, target, headers or {}, body, timeout)
        if stream.status < 300:
            return stream
        try:
            data = await stream.read()
        finally:
            await stream.aclose()
        raise _wire.response_error(stream.status, data, stream.headers.get("Retry-After"))


class AsyncMessages:
    """The messages of a stream; close it."""

    def __init__(self, stream: aio.Stream) -> None:
        self._stream = stream

    async def messages(self) -> AsyncIterator[_wire.Message]:
        """Gives the messages as they come, and ends when the server has said that it was all."""
        if self._stream.status != 200:
            raise _wire.response_error(
                self._stream.status,
                await self._stream.read(),
                self._stream.headers.get("Retry-After"),
            )
        frames = _wire.Frames()
        async for data in self._stream.chunks():
            for message in frames.feed(data):
                yield message
        if not frames.ended:
            raise Lost("the stream broke off", reason="unavailable", retryable=True)

    async def aclose(self) -> None:
        """Ends it."""
        await self._stream.aclose()

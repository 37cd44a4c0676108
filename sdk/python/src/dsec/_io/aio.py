"""HTTP, time and concurrency on an event loop."""

from __future__ import annotations

import asyncio
import socket
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, Union

import aiohttp
import yarl

from .._config import Config
from .._fork import forget, on_fork
from .._handshake import Handshake
from .._retry import Lost, Unreached

T = TypeVar("T")
R = TypeVar("R")

Body = Union[bytes, AsyncIterable[bytes], None]

CONNECT_TIMEOUT = 10.0


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Pace:
    """Bounds how many young requests there are at a time.

    The answers to a thousand requests that were sent together come together, and
    whoever else lives on the event loop waits until all are read; and a thousand quick commands
    at a time make a server no quicker. So only so many are sent at once. A request that
    takes longer than ``patience`` is old and does not count any more: thousands that wait for slow
    commands are in flight at no cost.

    How long a quick one takes depends on the server's load, so patience is learned: an
    old request that is answered soon after says that it was too short, one that goes on and
    on that it was too long.
    """

    SHORT, LONG = 0.05, 1.0  # bounds of the patience
    SLOW = 2.0  # a request that takes this long waits for a slow command

    def __init__(self, width: int = 24) -> None:
        self._free = width
        self.patience = self.SHORT
        self._line: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> Callable[[], None]:
        """Waits for its turn, and gives what ends it. Ending it twice is ending it once."""
        loop = asyncio.get_running_loop()
        if self._free > 0:
            self._free -= 1
        else:
            turn: asyncio.Future[None] = loop.create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.next()
                raise
        return _Request(self, loop).leave

    def next(self) -> None:
        """Lets the next in line go."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class _Request:
    """One request's way through :class:`Pace`: young, perhaps old, perhaps slow, over."""

    __slots__ = ("_loop", "_pace", "_state", "_timer")

    def __init__(self, pace: Pace, loop: asyncio.AbstractEventLoop) -> None:
        self._pace = pace
        self._loop = loop
        self._state = "young"
        self._timer = loop.call_later(pace.patience, self._age)

    def leave(self) -> None:
        was, self._state = self._state, "over"
        self._timer.cancel()
        if was == "young":
            self._pace.next()
        elif was == "old":
            self._pace.patience = min(self._pace.patience * 1.25, self._pace.LONG)

    def _age(self) -> None:
        self._state = "old"
        self._timer = self._loop.call_later(self._pace.SLOW, self._slow)
        self._pace.next()

    def _slow(self) -> None:
        self._state = "over"
        self._pace.patience = max(self._pace.patience / 2, self._pace.SHORT)


class Stream:
    """An answer that comes bit by bit."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Gives the bytes as they come."""
        try:
            async for data in self._response.content.iter_any():
                yield data
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as e:
            raise _lost(e) from e

    async def read(self) -> bytes:
        """Gives all bytes that are left."""
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as e:
            raise _lost(e) from e

    async def aclose(self) -> None:
        """Ends the stream; a connection with bytes under way cannot be used again."""
        self._response.close()


class _Loop:
    """What belongs to one event loop."""

    def __init__(self, config: Config) -> None:
        connector: aiohttp.BaseConnector
        if config.socket:
            connector = aiohttp.UnixConnector(config.socket, limit=0)
        else:
            connector = aiohttp.TCPConnector(limit=0, ssl=config.ssl_context or True)
        self.pace = Pace()
        self.session = aiohttp.ClientSession(
            connector=connector,
            headers={**config.headers, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class Transport:
    """Connections to one server. It may be used from several event loops, each with its own."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = (
            weakref.WeakKeyDictionary()
        )
        on_fork(self)

    def after_fork(self) -> None:
        """Leaves the parent's connections alone: they share its sockets and its poller."""
        forget(dict(self._loops))
        self._loops = weakref.WeakKeyDictionary()

    def _here(self) -> _Loop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            here = self._loops[loop] = _Loop(self.config)
        return here

    async def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Body = None,
        timeout: float | None = None,
    ) -> Answer:
        """Makes a request and gives the whole answer."""
        here = self._here()
        leave = await here.pace.enter()
        try:
            async with here.session.request(
                method,
                yarl.URL(self.config.base + target, encoded=True),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT),
                allow_redirects=False,
            ) as response:
                return Answer(response.status, response.headers, await response.read())
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as e:
            raise _lost(e) from e
        finally:
            leave()

    async def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Body = None,
        timeout: float | None = None,
    ) -> Stream:
        """Makes a request and gives the answer when it begins. ``timeout`` bounds silence."""
        here = self._here()
        leave = await here.pace.enter()
        try:
            response = await here.session.request(
                method,
                yarl.URL(self.config.base + target, encoded=True),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_TIMEOUT, sock_read=timeout
                ),
                allow_redirects=False,
                read_bufsize=1 << 18,
            )
        except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as e:
            raise _lost(e) from e
        finally:
            leave()
        return Stream(response)

    async def aclose(self) -> None:
        """Closes this event loop's connections."""
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is not None:
            await here.session.close()


def _lost(e: BaseException) -> Unreached | Lost:
    if isinstance(e, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)):
        return Unreached(
            f"the server cannot be reached: {e}",
            reason="unavailable",
            remedy="check the URL, and that the server runs",
            retryable=True,
        )
    if isinstance(e, asyncio.TimeoutError):
        return Lost("the server did not answer in time", reason="unavailable", retryable=True)
    return Lost(
        f"the connection broke: {e or type(e).__name__}", reason="unavailable", retryable=True
    )


class Connection:
    """A byte stream to an address in a box."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        #: For code that wants asyncio's own streams.
        self.reader, self.writer = reader, writer

    async def read(self, size: int = 65536) -> bytes:
        """Gives some bytes, at most ``size``; none at the end."""
        return await self.reader.read(size)

    async def write(self, data: bytes) -> None:
        """Sends all bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def end(self) -> None:
        """Says that nothing more is sent; what comes can still be read."""
        self.writer.write_eof()

    async def aclose(self) -> None:
        """Closes it."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


async def dial(config: Config, target: str) -> Connection:
    """Asks for a byte stream."""
    hello = Handshake(config, target)
    try:
        if config.socket:
            opening = asyncio.open_unix_connection(config.socket)
        else:
            host, port, tls = hello.address()
            opening = asyncio.open_connection(host, port, ssl=tls)
        reader, writer = await asyncio.wait_for(opening, CONNECT_TIMEOUT)
    except (OSError, asyncio.TimeoutError) as e:
        raise Unreached(
            f"the server cannot be reached: {e}", reason="unavailable", retryable=True
        ) from e
    try:
        sock = writer.get_extra_info("socket")
        if sock is not None and not config.socket:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writer.write(hello.request())
        head = await reader.readuntil(b"\r\n\r\n")
        size = hello.check(head)
        if size is not None:
            raise hello.error(await reader.readexactly(size))
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as e:
        writer.close()
        raise Lost(f"the connection broke: {e}", reason="unavailable", retryable=True) from e
    except BaseException:
        writer.close()
        raise
    return Connection(reader, writer)


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return asyncio.get_running_loop().time()


async def sleep(seconds: float) -> None:
    """Waits."""
    await asyncio.sleep(seconds)


async def each(
    items: Sequence[T], call: Callable[[T], Awaitable[R]], limit: int | None
) -> list[R]:
    """Calls for each item, ``limit`` at a time (None: all); the results are in order."""
    if limit is None or limit >= len(items):
        return list(await asyncio.gather(*(call(item) for item in items)))
    slots = asyncio.Semaphore(limit)

    async def one(item: T) -> R:
        async with slots:
            return await call(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


_tasks: set[asyncio.Task[Any]] = set()


async def finally_do(call: Callable[[], Awaitable[Any]]) -> None:
    """Has something done even if the caller is being cancelled; its failure is nobody's."""

    async def quietly() -> None:
        with suppress(Exception):
            await call()

    task = asyncio.ensure_future(quietly())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    with suppress(asyncio.CancelledError):
        await asyncio.shield(task)


#: What tells that the caller does not want the answer any more.
Abandoned = (asyncio.CancelledError, KeyboardInterrupt)

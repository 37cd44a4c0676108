"""HTTP, time and concurrency for threads."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, Union
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NewConnectionError,
    ReadTimeoutError,
)

from .._config import Config
from .._fork import forget, on_fork
from .._handshake import Handshake
from .._retry import Lost, Unreached

T = TypeVar("T")
R = TypeVar("R")

Body = Union[bytes, Iterable[bytes], None]

CONNECT_TIMEOUT = 10.0

_KEEPALIVE = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Stream:
    """An answer that comes bit by bit."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    def chunks(self) -> Iterator[bytes]:
        """Gives the bytes as they come."""
        try:
            yield from self._response.stream(1 << 16)
        except (HTTPError, OSError) as e:
            raise _lost(e) from e

    def read(self) -> bytes:
        """Gives all bytes that are left."""
        try:
            return self._response.read()
        except (HTTPError, OSError) as e:
            raise _lost(e) from e

    def close(self) -> None:
        """Ends the stream; a connection with bytes under way cannot be used again."""
        if not getattr(self._response, "closed", False):
            self._response.close()
        self._response.release_conn()


class _UnixConnection(HTTPConnection):
    path = ""

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(CONNECT_TIMEOUT)
        try:
            sock.connect(self.path)
        except OSError as e:
            sock.close()
            raise NewConnectionError(self, f"{self.path}: {e}") from e
        sock.settimeout(self.timeout)
        self.sock = sock


def _pool(config: Config) -> urllib3.HTTPConnectionPool:
    options: dict[str, Any] = {"maxsize": 1024, "block": False}
    parts = urlsplit(config.base)
    if config.socket:
        pool = urllib3.HTTPConnectionPool("dsec", **options)
        connection: Any = type("UnixConnection", (_UnixConnection,), {"path": config.socket})
        pool.ConnectionCls = connection
        return pool
    host = parts.hostname or ""
    options["socket_options"] = _KEEPALIVE
    if parts.scheme == "https":
        return urllib3.HTTPSConnectionPool(
            host, parts.port, ssl_context=config.ssl_context, **options
        )
    return urllib3.HTTPConnectionPool(host, parts.port, **options)


class Transport:
    """Connections to one server, for any number of threads."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._prefix = urlsplit(config.base).path
        self._pool = _pool(config)
        self._headers = {**config.headers, "Accept-Encoding": "identity"}
        on_fork(self)

    def after_fork(self) -> None:
        """Leaves the parent's connections alone."""
        forget(self._pool)
        self._pool = _pool(self.config)

    def _send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Body,
        timeout: float | None,
        whole: bool,
    ) -> urllib3.BaseHTTPResponse:
        payload: Any = body
        if body is not None and not isinstance(body, (bytes, bytearray, io.IOBase)):
            payload = iter(body)
        return self._pool.urlopen(
            method,
            self._prefix + target,
            body=payload,
            headers={**self._headers, **headers},
            retries=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            preload_content=whole,
            decode_content=False,
        )

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Body = None,
        timeout: float | None = None,
    ) -> Answer:
        """Makes a request and gives the whole answer."""
        try:
            response = self._send(method, target, headers, body, timeout, True)
            return Answer(response.status, response.headers, response.data)
        except (HTTPError, OSError) as e:
            raise _lost(e) from e

    def open(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Body = None,
        timeout: float | None = None,
    ) -> Stream:
        """Makes a request and gives the answer when it begins. ``timeout`` bounds silence."""
        try:
            return Stream(self._send(method, target, headers, body, timeout, False))
        except (HTTPError, OSError) as e:
            raise _lost(e) from e

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()
        self._pool = _pool(self.config)


def _lost(e: BaseException) -> Unreached | Lost:
    cause = e.reason if isinstance(e, MaxRetryError) else e
    if isinstance(cause, (NewConnectionError, ConnectTimeoutError)):
        return Unreached(
            f"the server cannot be reached: {cause.__cause__ or cause}",
            reason="unavailable",
            remedy="check the URL, and that the server runs",
            retryable=True,
        )
    if isinstance(cause, ReadTimeoutError):
        return Lost("the server did not answer in time", reason="unavailable", retryable=True)
    return Lost(
        f"the connection broke: {e or type(e).__name__}", reason="unavailable", retryable=True
    )


class Connection:
    """A byte stream to an address in a box."""

    def __init__(self, sock: socket.socket, begun: bytes) -> None:
        #: For code that wants the socket; what came with the handshake is read by :meth:`read`.
        self.socket = sock
        self._begun = begun

    def read(self, size: int = 65536) -> bytes:
        """Gives some bytes, at most ``size``; none at the end."""
        if self._begun:
            data, self._begun = self._begun[:size], self._begun[size:]
            return data
        return self.socket.recv(size)

    def write(self, data: bytes) -> None:
        """Sends all bytes."""
        self.socket.sendall(data)

    def end(self) -> None:
        """Says that nothing more is sent; what comes can still be read."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes it."""
        self.socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def dial(config: Config, target: str) -> Connection:
    """Asks for a byte stream."""
    hello = Handshake(config, target)
    try:
        if config.socket:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(CONNECT_TIMEOUT)
            sock.connect(config.socket)
        else:
            host, port, tls = hello.address()
            sock = socket.create_connection((host, port), CONNECT_TIMEOUT)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host)
    except OSError as e:
        raise Unreached(
            f"the server cannot be reached: {e}", reason="unavailable", retryable=True
        ) from e
    try:
        sock.settimeout(60)
        sock.sendall(hello.request())
        data = b""
        while b"\r\n\r\n" not in data:
            data += _some(sock)
        head, _, rest = data.partition(b"\r\n\r\n")
        size = hello.check(head)
        if size is not None:
            while len(rest) < size:
                rest += _some(sock)
            raise hello.error(rest)
        sock.settimeout(None)
    except OSError as e:
        sock.close()
        raise Lost(f"the connection broke: {e}", reason="unavailable", retryable=True) from e
    except BaseException:
        sock.close()
        raise
    return Connection(sock, rest)


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(65536)
    if not data:
        raise ConnectionResetError("closed by the server")
    return data


def now() -> float:
    """Seconds of a clock that only goes forward."""
    return time.monotonic()


def sleep(seconds: float) -> None:
    """Waits."""
    time.sleep(seconds)


def each(items: Sequence[T], call: Callable[[T], R], limit: int | None) -> list[R]:
    """Calls for each item, ``limit`` at a time (None: 256 threads); the results are in order."""
    if not items:
        return []
    with ThreadPoolExecutor(min(limit or 256, len(items)), "dsec-each") as pool:
        return list(pool.map(call, items))


def finally_do(call: Callable[[], Any]) -> None:
    """Has something done although the caller was interrupted; its failure is nobody's."""
    with suppress(Exception):
        call()


#: What tells that the caller does not want the answer any more.
Abandoned = (KeyboardInterrupt, SystemExit)

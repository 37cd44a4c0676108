"""The request that turns a connection into a byte stream. Nothing here does I/O."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from . import _wire
from ._config import Config
from .errors import DSecError, InfrastructureError


class Handshake:
    """One request for a byte stream."""

    def __init__(self, config: Config, target: str) -> None:
        self._config = config
        self._target = target
        self._status = 0

    def address(self) -> tuple[str, int, ssl.SSLContext | None]:
        """Where to connect, and with what context if by TLS."""
        parts = urlsplit(self._config.base)
        tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            tls = self._config.ssl_context or ssl.create_default_context()
        return parts.hostname or "", parts.port or (443 if tls else 80), tls

    def request(self) -> bytes:
        """What to send."""
        parts = urlsplit(self._config.base)
        lines = [
            f"GET {parts.path}{self._target} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Connection: Upgrade",
            "Upgrade: dsec-dial",
        ]
        lines += [f"{name}: {value}" for name, value in self._config.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def check(self, head: bytes) -> int | None:
        """Reads the answer's head: None when the stream has begun, else the size of the error."""
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise InfrastructureError("the answer is not HTTP")
        self._status = int(words[1])
        if self._status == 101:
            return None
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name.strip().lower() == "content-length" and value.strip().isdigit():
                return min(int(value), 1 << 16)
        return 0

    def error(self, body: bytes) -> DSecError:
        """Gives the error that the server answered."""
        return _wire.response_error(self._status, body, None)

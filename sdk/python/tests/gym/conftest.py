"""Needs gymnasium, and a server in DSEC_URL with a template "debian"; see test/integrations."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from urllib.parse import urlsplit

import pytest

import dsec

collect_ignore_glob = [] if find_spec("gymnasium") else ["test_*.py"]


class Wire:
    """A way to the server that can be cut, as networks are."""

    def __init__(self, to: str) -> None:
        self._to = urlsplit(to)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._whole = True
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._whole:
                    here.close()
                    continue
                there = socket.create_connection((self._to.hostname, self._to.port))
                self._ends |= {here, there}
            for a, b in ((here, there), (there, here)):
                threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
        except OSError:
            pass
        finally:
            for end in (a, b):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def cut(self) -> None:
        """Breaks what is connected, and lets nobody connect."""
        with self._lock:
            self._whole = False
            for end in self._ends:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()
            self._ends.clear()

    def mend(self) -> None:
        """Lets them connect again."""
        with self._lock:
            self._whole = True

    def close(self) -> None:
        """Ends it."""
        self.cut()
        self._listener.close()


@pytest.fixture
def wire() -> Iterator[Wire]:
    w = Wire(os.environ["DSEC_URL"])
    yield w
    w.close()


@pytest.fixture
def wired(wire: Wire) -> Iterator[dsec.Client]:
    """A client whose server can be cut off; it gives up soon."""
    client = dsec.Client(wire.url, retry_for=0.3)
    yield client
    wire.mend()
    client.close()

"""The owner lease of this process: who says that it lives, and gives it back at the end.

The signs of life come from a thread of their own with a connection of its own, so that
neither a busy event loop nor calls that take long can make this process look dead.
"""

from __future__ import annotations

import atexit
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from . import _wire
from ._config import Config
from ._fork import forget, on_fork
from ._io.blocking import Transport
from .errors import DSecError

#: How long the end of the process waits for the server to take its sessions back.
FAREWELL = 10.0

#: After these there is nothing to keep.
_OVER = ("owner_lost", "conflict", "not_found", "unauthenticated")


class Keeper:
    """Keeps one lease alive until it is released or this process ends.

    A forked child is another process: in it the keeper does nothing.
    """

    def __init__(self, config: Config, lease_id: str, ttl: float) -> None:
        self.lease_id = lease_id
        self.ttl = ttl
        #: Why the lease is lost, if it is.
        self.lost: DSecError | None = None
        #: Whether the process is a child of the one that made it.
        self.foreign = False
        self._transport = Transport(config)
        self._wake = threading.Event()
        self._released = threading.Event()
        self._bye = False
        self._thread = threading.Thread(target=self._run, name="dsec-lease", daemon=True)
        _register(self)
        on_fork(self)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether new sessions can be given to the lease."""
        return not self.foreign and self.lost is None and not self._wake.is_set()

    def after_fork(self) -> None:
        """The lease is the parent's."""
        self.foreign = True
        forget(self._thread)
        _living.discard(self)

    def retire(self) -> None:
        """Says no more that this process lives. Whoever calls it releases the lease."""
        self._wake.set()
        _living.discard(self)

    def farewell(self) -> None:
        """Has the thread release the lease; see :meth:`wait_released`."""
        self._bye = True
        self._wake.set()

    def wait_released(self, timeout: float) -> None:
        """Waits until the lease is released, or has been tried to be."""
        self._released.wait(timeout)

    def release(self) -> None:
        """Gives the lease back, in the caller's thread. Its sessions are stopped."""
        self.retire()
        if not self.foreign and self.lost is None:
            self._call("ReleaseLease", FAREWELL)

    def _run(self) -> None:
        pause = self.ttl / 3
        while not self._wake.wait(pause * random.uniform(0.8, 1.0)):
            pause = self.ttl / 3
            error = self._call("RenewLease", max(0.5, self.ttl / 3))
            if error is None:
                continue
            if error.reason in _OVER:
                self.lost = error
                _living.discard(self)
                return
            pause = min(1.0, self.ttl / 10)
        if self._bye:
            self._call("ReleaseLease", FAREWELL)
        self._released.set()
        self._transport.close()

    def _call(self, method: str, timeout: float) -> DSecError | None:
        body = _wire.encode({"lease_id": self.lease_id})
        try:
            answer = self._transport.request(
                "POST", "/dsec.v1.LeaseService/" + method, {"Content-Type": _wire.JSON}, body, timeout
            )
        except DSecError as e:
            return e
        if answer.status == 200:
            return None
        return _wire.response_error(answer.status, answer.data, None)


_living: set[Keeper] = set()
_lock = threading.Lock()
_prepared = False


def _register(keeper: Keeper) -> None:
    global _prepared
    with _lock:
        _living.add(keeper)
        if not _prepared:
            _prepared = True
            atexit.register(_at_exit)
    _guard_sigterm()


def _at_exit() -> None:
    for keeper in list(_living):
        keeper.release()


def _guard_sigterm() -> None:
    """Releases leases when SIGTERM ends this process.

    A handler of somebody else is left in place: it decides whether the process ends, and
    if it ends in order, the leases are released at exit.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)
    except (ValueError, OSError):
        return  # not the main interpreter


def _on_sigterm(number: int, _frame: FrameType | None) -> None:
    # The threads do it: what this signal interrupted may hold any lock.
    keepers = list(_living)
    for keeper in keepers:
        keeper.farewell()
    until = time.monotonic() + FAREWELL
    for keeper in keepers:
        keeper.wait_released(max(0.0, until - time.monotonic()))
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _reset_lock() -> None:
    global _lock
    _lock = threading.Lock()


_after: Callable[..., Any] | None = getattr(os, "register_at_fork", None)
if _after is not None:
    _after(after_in_child=_reset_lock)

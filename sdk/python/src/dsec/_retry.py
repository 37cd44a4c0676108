"""When a call is made again, and after how long. Nothing here does I/O."""

from __future__ import annotations

import random
import secrets

from .errors import DSecError, InfrastructureError


class Unreached(InfrastructureError):
    """The request never arrived: making it again is always safe."""


class Lost(InfrastructureError):
    """The connection broke, or fell silent, before the answer."""


class Retry:
    """The attempts of one call.

    ``safe`` says that repeating the call has no second effect. A call that never arrived
    is repeated always, one whose connection broke only if safe, and one that the
    server put off when it said so.
    """

    def __init__(self, budget: float, now: float, safe: bool) -> None:
        self._until = now + budget
        self._safe = safe
        self._wait = 0.02

    def after(self, error: DSecError, now: float) -> float | None:
        """Gives the pause before the next attempt, or None when there is none."""
        if not self._repeatable(error):
            return None
        # Full jitter keeps a thousand tasks that failed together from coming back together.
        pause = random.uniform(self._wait / 2, self._wait * 1.5)
        self._wait = min(self._wait * 2, 2.0)
        if error.retry_after is not None:
            pause = error.retry_after + random.uniform(0, error.retry_after / 2)
        return pause if now + pause < self._until else None

    def _repeatable(self, error: DSecError) -> bool:
        if isinstance(error, Unreached):
            return True
        if isinstance(error, Lost):
            return self._safe
        if not error.retryable:
            return False
        return error.reason == "rate_limited" or (self._safe and error.reason == "unavailable")


def new_id() -> str:
    """Makes an operation id or idempotency key that nobody else makes."""
    return secrets.token_hex(13)

"""What can go wrong, and whose fault it is.

Every failure is a :class:`DSecError` of one of four classes. An
:class:`InfrastructureError` means that the platform failed: nothing that runs in a box
can cause one, so a trainer masks it. The others are results.

>>> error = from_wire({"class": "limit", "reason": "queue_full", "message": "full", "retryable": True})
>>> type(error).__name__, error.reason, error.retryable
('LimitError', 'queue_full', True)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "CommandError",
    "DSecError",
    "InfrastructureError",
    "LimitError",
    "PolicyError",
    "UserError",
    "from_wire",
]


class DSecError(Exception):
    """A failure, as the platform tells it.

    ``reason`` is stable and can be switched on (``"not_found"``, ``"box_gone"``,
    ``"owner_lost"``, …). ``retryable`` says whether the same request may succeed later.
    """

    #: Whose fault it is: "user", "limit", "policy" or "infrastructure".
    error_class: str = "infrastructure"

    def __init__(
        self,
        message: str,
        *,
        reason: str = "internal",
        object: str = "",
        remedy: str = "",
        scope: str = "platform",
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        #: What it is about, such as "session s01…".
        self.object = object
        #: What to do next.
        self.remedy = remedy
        #: How far it reaches: "box", "node" or "platform".
        self.scope = scope
        self.retryable = retryable
        #: Seconds after which the server wants to be asked again.
        self.retry_after = retry_after

    def __str__(self) -> str:
        text = f"{self.object}: {self.message}" if self.object else self.message
        return f"{text} ({self.remedy})" if self.remedy else text

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[DSecError], message: str, state: dict[str, Any]) -> DSecError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class InfrastructureError(DSecError):
    """The platform failed; never caused by what runs in a box."""

    error_class = "infrastructure"


class LimitError(DSecError):
    """A declared limit was reached: memory, disk, time, output, quota, queue."""

    error_class = "limit"


class PolicyError(DSecError):
    """It is forbidden, or the box was tampered with."""

    error_class = "policy"


class UserError(DSecError):
    """The request is wrong: no such program, a bad path, a session that has ended."""

    error_class = "user"


class CommandError(DSecError):
    """A command ran and did not succeed; raised on request only (``check=True``)."""

    error_class = "user"

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message, reason="command_failed", scope="box")
        #: The command's :class:`dsec.ExecResult`.
        self.result = result


_CLASSES: dict[str, type[DSecError]] = {
    c.error_class: c for c in (InfrastructureError, LimitError, PolicyError, UserError)
}


def from_wire(wire: Mapping[str, Any], retry_after: float | None = None) -> DSecError:
    """Gives the error that a message ``dsec.v1.Error`` tells."""
    return _CLASSES.get(str(wire.get("class", "")), InfrastructureError)(
        str(wire.get("message", "unknown failure")),
        reason=str(wire.get("reason", "internal")),
        object=str(wire.get("object", "")),
        remedy=str(wire.get("remedy", "")),
        scope=str(wire.get("scope", "platform")),
        retryable=bool(wire.get("retryable", False)),
        retry_after=retry_after,
    )

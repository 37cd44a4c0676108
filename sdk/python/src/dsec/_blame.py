"""Whose fault the end of a session is."""

from __future__ import annotations

import inspect
from typing import Any

from .errors import DSecError, InfrastructureError

#: The process that owned the session was silent for too long, which no code in a box can bring about.
_OWNER = "owner_lost"


async def settle(value: Any) -> Any:
    """Gives a value of the blocking client, or waits for one of the other."""
    return await value if inspect.isawaitable(value) else value


async def blame(session: Any, error: DSecError) -> DSecError:
    """Gives the error, or, when the session ended by no fault of its agent, that as an
    :class:`InfrastructureError`: a call to an ended session says only that it has ended.

    May raise when the server cannot be asked.
    """
    if error.error_class == "infrastructure":
        return error
    if error.reason not in ("box_gone", "not_found", "conflict", _OWNER):
        return error
    if error.reason == "not_found" and not error.object.startswith("session"):
        return error
    info = await settle(session.refresh())
    if info.live:
        return error
    ended: DSecError | None = info.error
    if ended is not None and ended.error_class == "infrastructure":
        return ended
    if (ended is not None and ended.reason == _OWNER) or _OWNER in info.reason:
        return InfrastructureError(
            f"the session was taken away: {info.reason}",
            reason=_OWNER,
            object=f"session {info.id}",
            remedy="keep the process that owns the session alive and not stopped",
        )
    return error

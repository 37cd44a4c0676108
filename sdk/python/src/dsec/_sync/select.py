# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""Changes of many sessions at once."""

from __future__ import annotations

from typing import Any

from .._outcome import Outcome
from .._types import SessionInfo
from ..errors import from_wire
from .rpc import Rpc


def change(
    rpc: Rpc, what: str, selector: dict[str, Any], more: dict[str, Any]
) -> list[Outcome[SessionInfo]]:
    """Stops, suspends or resumes what the selector names, and says what became of each."""
    answer = rpc.call(
        "SessionService/" + what, {"selector": selector, **more}, timeout=None
    )
    outcomes: list[Outcome[SessionInfo]] = []
    for at, m in enumerate(answer.get("results") or ()):
        info = SessionInfo.read(m["session"]) if m.get("session") else None
        error = from_wire(m["error"]) if m.get("error") else None
        outcomes.append(Outcome(at, str(m.get("id", "")), info, error))
    return outcomes

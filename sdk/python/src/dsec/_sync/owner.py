# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""The lease by which a client owns its sessions."""

from __future__ import annotations

import threading
from typing import Literal

from .._keeper import Keeper
from .._retry import new_id
from .rpc import Rpc

#: What becomes of the sessions when this process falls silent.
OnOwnerLost = Literal["stop", "suspend"]

_lock = threading.Lock()


class Owner:
    """Makes the lease when the first session needs it, and another when it was lost."""

    def __init__(
        self, rpc: Rpc, ttl: float | None, on_lost: OnOwnerLost, lease_id: str | None
    ) -> None:
        self._rpc = rpc
        self._ttl = ttl
        self._on_lost = on_lost
        self._given = lease_id
        self._key = new_id()
        self.keeper: Keeper | None = None

    def lease(self) -> str:
        """Gives the id of a lease that lives; empty when the client owns nothing."""
        if self._ttl is None:
            return ""
        if self.keeper is not None and self.keeper.alive:
            return self.keeper.lease_id
        if self.keeper is not None:
            self.keeper = None
            self._key = new_id()
            self._given = None
        key = self._key
        if self._given:
            self._rpc.call("LeaseService/RenewLease", {"lease_id": self._given})
            answer = self._rpc.call("LeaseService/GetLease", {"lease_id": self._given})
        else:
            # Whoever asks at the same time asks with the same key, and gets the same lease.
            answer = self._rpc.call(
                "LeaseService/CreateLease",
                {
                    "idempotency_key": key,
                    "ttl_ms": round(self._ttl * 1000),
                    "on_expiry": self._on_lost,
                },
            )
        lease = answer["lease"]
        made = str(lease["id"])
        with _lock:  # nothing is awaited in it
            current: Keeper | None = self.keeper
            if current is None or current.lease_id != made:
                current = Keeper(self._rpc.config, made, int(lease["ttl_ms"]) / 1000)
                self.keeper = current
        return current.lease_id

    def release(self, keep_sessions: bool) -> None:
        """Gives the lease back: its sessions are stopped, or live on without an owner."""
        keeper, self.keeper = self.keeper, None
        self._key = new_id()
        if keeper is None or keeper.foreign or keeper.lost is not None:
            return
        keeper.retire()
        self._rpc.call(
            "LeaseService/ReleaseLease",
            {"lease_id": keeper.lease_id, "keep_sessions": keep_sessions},
            timeout=None,
        )

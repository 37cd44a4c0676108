"""The client of an evaluation, and the boxes that its samples use."""

from __future__ import annotations

import asyncio
import weakref
from asyncio import AbstractEventLoop

from dsec import AsyncClient, AsyncSession, DSecError

#: On every session, so that `inspect sandbox cleanup dsec` finds what was left.
LABEL = {"inspect-ai": "sandbox"}


class Boxes:
    """What one event loop has: a client, and the sessions that it made."""

    def __init__(self) -> None:
        self.client = AsyncClient()
        self.started = 0
        self.sessions: dict[str, AsyncSession] = {}

    async def make(
        self, template: str, spec: dict[str, object], env: dict[str, str], labels: dict[str, str]
    ) -> AsyncSession:
        """Makes a session."""
        session = await self.client.create(template, spec=spec, env=env, labels=labels | LABEL)
        self.sessions[session.id] = session
        return session

    async def stop(self, ids: list[str]) -> None:
        """Stops sessions. That they have ended already is no error."""
        ids = [id for id in ids if self.sessions.pop(id, None) is not None]
        if not ids:
            return
        for outcome in await self.client.stop(ids=ids, reason="the sample has ended"):
            if isinstance(outcome.error, DSecError) and outcome.error.reason != "not_found":
                raise outcome.error

    async def close(self, cleanup: bool) -> list[str]:
        """Ends it all, and gives the ids of what is left running on request."""
        left = [] if cleanup else list(self.sessions)
        try:
            if not cleanup:
                await self.client.release(keep_sessions=True)
        finally:
            await self.client.aclose()
        return left


_all: weakref.WeakKeyDictionary[AbstractEventLoop, Boxes] = weakref.WeakKeyDictionary()


def boxes() -> Boxes:
    """Gives what the running event loop has."""
    loop = asyncio.get_running_loop()
    if loop not in _all:
        _all[loop] = Boxes()
    return _all[loop]


def forget() -> None:
    """Drops what the running event loop has; it was closed."""
    _all.pop(asyncio.get_running_loop(), None)

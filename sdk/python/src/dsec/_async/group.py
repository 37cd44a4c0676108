"""Sessions that were asked for together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

from .._exec_types import Command, ExecResult
from .._io import aio
from .._outcome import Outcome
from .._types import SessionInfo
from ..errors import DSecError
from .rpc import AsyncRpc
from .select import change
from .session import AsyncSession

R = TypeVar("R")

#: Sessions of one request.
_BATCH = 256


class AsyncGroup(Sequence[AsyncSession]):
    """The sessions of one create, in order; those that were not made are in :attr:`failures`.

    As a context manager all are stopped at the end. What is done with a group gives one
    :class:`dsec.Outcome` a session, so that one failure spoils no other.

    >>> async with client.create(count=3) as group:
    ...     outcomes = await group.exec("echo $((6 * 7))")
    ...     print([o.unwrap().stdout.strip() for o in outcomes])
    ['42', '42', '42']
    """

    def __init__(self, rpc: AsyncRpc, created: Sequence[Outcome[AsyncSession]]) -> None:
        self._rpc = rpc
        #: What became of each session that was asked for.
        self.created = tuple(created)
        self._sessions = tuple(o.value for o in created if o.ok and o.value is not None)

    @property
    def failures(self) -> tuple[Outcome[AsyncSession], ...]:
        """The sessions that were not made, and why."""
        return tuple(o for o in self.created if not o.ok)

    def check(self) -> AsyncGroup:
        """Gives the group, or raises the first of its failures: not all sessions were made.

        Within the group's context those that were made are stopped then, as at any other end.

        >>> async with client.create(count=3) as group:
        ...     print(len(group.check()))
        3
        """
        for failure in self.failures:
            failure.unwrap()
        return self

    @property
    def ids(self) -> tuple[str, ...]:
        """The sessions' ids."""
        return tuple(s.id for s in self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    @overload
    def __getitem__(self, at: int) -> AsyncSession: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[AsyncSession, ...]: ...

    def __getitem__(self, at: int | slice) -> AsyncSession | tuple[AsyncSession, ...]:
        return self._sessions[at]

    def __iter__(self) -> Iterator[AsyncSession]:
        return iter(self._sessions)

    async def map(
        self,
        call: Callable[[AsyncSession], Awaitable[R]],
        *,
        limit: int | None = None,
    ) -> list[Outcome[R]]:
        """Does something with each session, ``limit`` at a time (None: all; in threads, 256)."""

        async def one(item: tuple[int, AsyncSession]) -> Outcome[R]:
            at, session = item
            try:
                return Outcome(at, session.id, value=await call(session))
            except Exception as e:
                return Outcome(at, session.id, error=e)

        return await aio.each(list(enumerate(self._sessions)), one, limit)

    async def exec(
        self,
        command: Command,
        *,
        limit: int | None = None,
        timeout: float | None = None,
        max_output: int = 0,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes = "",
        user: str = "",
        check: bool = False,
    ) -> list[Outcome[ExecResult]]:
        """Runs one command in each session, as :meth:`AsyncSession.exec` does."""

        async def one(session: AsyncSession) -> ExecResult:
            return await session.exec(
                command,
                timeout=timeout,
                max_output=max_output,
                stdin=stdin,
                env=env,
                cwd=cwd,
                user=user,
                check=check,
            )

        return await self.map(one, limit=limit)

    async def suspend(self) -> list[Outcome[SessionInfo]]:
        """Freezes the processes of all."""
        return await self._change("Suspend", {})

    async def resume(self) -> list[Outcome[SessionInfo]]:
        """Thaws the processes of all."""
        return await self._change("Resume", {})

    async def stop(self, reason: str = "") -> list[Outcome[SessionInfo]]:
        """Ends all, and returns when nothing of their boxes is left."""
        return await self._change("Stop", {"reason": reason} if reason else {})

    async def _change(self, what: str, more: dict[str, Any]) -> list[Outcome[SessionInfo]]:
        # Answers of bounded size, all asked for at once: reading one holds nobody up.
        batches = [(at, self.ids[at : at + _BATCH]) for at in range(0, len(self), _BATCH)]

        async def one(batch: tuple[int, tuple[str, ...]]) -> list[Outcome[SessionInfo]]:
            at, ids = batch
            outcomes = await change(self._rpc, what, {"ids": list(ids)}, more)
            return [replace(o, index=at + o.index) for o in outcomes]

        parts = await aio.each(batches, one, None)
        return [o for part in parts for o in part]

    async def __aenter__(self) -> AsyncGroup:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            outcomes = await self.stop()
        except DSecError:
            if error is None:
                raise
            return
        for o in outcomes:
            gone = isinstance(o.error, DSecError) and o.error.reason == "not_found"
            if not gone and error is None:
                o.unwrap()

    def __repr__(self) -> str:
        return f"<AsyncGroup of {len(self)}, {len(self.failures)} failed>"

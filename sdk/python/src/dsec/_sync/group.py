# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""Sessions that were asked for together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

from .._exec_types import Command, ExecResult
from .._io import blocking
from .._outcome import Outcome
from .._types import SessionInfo
from ..errors import DSecError
from .rpc import Rpc
from .select import change
from .session import Session

R = TypeVar("R")

#: Sessions of one request.
_BATCH = 256


class Group(Sequence[Session]):
    """The sessions of one create, in order; those that were not made are in :attr:`failures`.

    As a context manager all are stopped at the end. What is done with a group gives one
    :class:`dsec.Outcome` a session, so that one failure spoils no other.

    >>> with client.create(count=3) as group:
    ...     outcomes = group.exec("echo $((6 * 7))")
    ...     print([o.unwrap().stdout.strip() for o in outcomes])
    ['42', '42', '42']
    """

    def __init__(self, rpc: Rpc, created: Sequence[Outcome[Session]]) -> None:
        self._rpc = rpc
        #: What became of each session that was asked for.
        self.created = tuple(created)
        self._sessions = tuple(o.value for o in created if o.ok and o.value is not None)

    @property
    def failures(self) -> tuple[Outcome[Session], ...]:
        """The sessions that were not made, and why."""
        return tuple(o for o in self.created if not o.ok)

    def check(self) -> Group:
        """Gives the group, or raises the first of its failures: not all sessions were made.

        Within the group's context those that were made are stopped then, as at any other end.

        >>> with client.create(count=3) as group:
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
    def __getitem__(self, at: int) -> Session: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Session, ...]: ...

    def __getitem__(self, at: int | slice) -> Session | tuple[Session, ...]:
        return self._sessions[at]

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions)

    def map(
        self,
        call: Callable[[Session], R],
        *,
        limit: int | None = None,
    ) -> list[Outcome[R]]:
        """Does something with each session, ``limit`` at a time (None: all; in threads, 256)."""

        def one(item: tuple[int, Session]) -> Outcome[R]:
            at, session = item
            try:
                return Outcome(at, session.id, value=call(session))
            except Exception as e:
                return Outcome(at, session.id, error=e)

        return blocking.each(list(enumerate(self._sessions)), one, limit)

    def exec(
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
        """Runs one command in each session, as :meth:`Session.exec` does."""

        def one(session: Session) -> ExecResult:
            return session.exec(
                command,
                timeout=timeout,
                max_output=max_output,
                stdin=stdin,
                env=env,
                cwd=cwd,
                user=user,
                check=check,
            )

        return self.map(one, limit=limit)

    def suspend(self) -> list[Outcome[SessionInfo]]:
        """Freezes the processes of all."""
        return self._change("Suspend", {})

    def resume(self) -> list[Outcome[SessionInfo]]:
        """Thaws the processes of all."""
        return self._change("Resume", {})

    def stop(self, reason: str = "") -> list[Outcome[SessionInfo]]:
        """Ends all, and returns when nothing of their boxes is left."""
        return self._change("Stop", {"reason": reason} if reason else {})

    def _change(self, what: str, more: dict[str, Any]) -> list[Outcome[SessionInfo]]:
        # Answers of bounded size, all asked for at once: reading one holds nobody up.
        batches = [(at, self.ids[at : at + _BATCH]) for at in range(0, len(self), _BATCH)]

        def one(batch: tuple[int, tuple[str, ...]]) -> list[Outcome[SessionInfo]]:
            at, ids = batch
            outcomes = change(self._rpc, what, {"ids": list(ids)}, more)
            return [replace(o, index=at + o.index) for o in outcomes]

        parts = blocking.each(batches, one, None)
        return [o for part in parts for o in part]

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            outcomes = self.stop()
        except DSecError:
            if error is None:
                raise
            return
        for o in outcomes:
            gone = isinstance(o.error, DSecError) and o.error.reason == "not_found"
            if not gone and error is None:
                o.unwrap()

    def __repr__(self) -> str:
        return f"<Group of {len(self)}, {len(self.failures)} failed>"

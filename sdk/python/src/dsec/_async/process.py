"""A command that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from .. import _wire
from .._exec_types import (
    Chunk,
    ExecEvent,
    ExecResult,
    Exited,
    Gap,
    PtySize,
    Started,
    StreamName,
    read_event,
)
from .._io import aio
from .._retry import Lost, Retry
from ..errors import DSecError, InfrastructureError
from .rpc import AsyncMessages, AsyncRpc


class AsyncProcess:
    """A command that was started. What it does is read by iterating over it.

    A lost connection loses nothing: the iteration goes on where it was. As a context
    manager it kills the command at the end, if it still runs.

    >>> async with client.create() as session:
    ...     process = await session.start("echo one; sleep 0.5; echo two >&2")
    ...     async for event in process:
    ...         if isinstance(event, Chunk):
    ...             print(event.stream, event.text.strip())
    ...     result = await process.wait()
    stdout one
    stderr two
    """

    def __init__(
        self, rpc: AsyncRpc, session_id: str, op_id: str, command: dict[str, Any] | None = None
    ) -> None:
        self._rpc = rpc
        self._session_id = session_id
        #: The operation's id, by which another process can follow it too.
        self.op_id = op_id
        #: Process id in the box; 0 before it is known.
        self.pid = 0
        self._command = command
        self._begun: tuple[AsyncMessages, AsyncIterator[_wire.Message]] | None = None
        self._offsets: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        self._written = 0
        self._ended = False

    async def _start(self) -> None:
        """Starts it; returns when it runs, or has said why not."""

        async def once() -> None:
            stream = await self._rpc.stream(
                "ExecService/Start", {"session_id": self._session_id, "command": self._command}
            )
            messages = stream.messages()
            try:
                async for message in messages:
                    event = read_event(message)
                    if isinstance(event, Started):
                        self.pid = event.pid
                        self._begun = (stream, messages)
                        return
                raise InfrastructureError("the server did not say that the command runs")
            except BaseException:
                await stream.aclose()
                raise

        await self._rpc.retry(once, True)

    async def events(self) -> AsyncIterator[ExecEvent]:
        """Gives what happens, until the command has ended; the last event is :class:`Exited`."""
        attempts: Retry | None = None
        while not self._ended:
            stream: AsyncMessages | None = None
            try:
                if self._begun is not None:
                    stream, messages = self._begun
                    self._begun = None
                else:
                    stream = await self._attach()
                    messages = stream.messages()
                async for message in messages:
                    event = read_event(message)
                    if event is None:
                        continue
                    attempts = None
                    self._note(event)
                    yield event
                    if self._ended:
                        return
                raise Lost("the stream ended before the command", reason="unavailable")
            except DSecError as e:
                if attempts is None:
                    attempts = self._rpc.attempts()
                pause = attempts.after(e, aio.now())
                if pause is None:
                    raise
            finally:
                if stream is not None:
                    await stream.aclose()
            await aio.sleep(pause)

    def __aiter__(self) -> AsyncIterator[ExecEvent]:
        return self.events()

    async def _attach(self) -> AsyncMessages:
        return await self._rpc.stream(
            "ExecService/Attach",
            {
                "session_id": self._session_id,
                "op_id": self.op_id,
                "stdout_offset": self._offsets["stdout"],
                "stderr_offset": self._offsets["stderr"],
            },
        )

    def _note(self, event: ExecEvent) -> None:
        if isinstance(event, Started):
            self.pid = event.pid
        elif isinstance(event, Chunk):
            self._offsets[event.stream] = event.offset + len(event.data)
        elif isinstance(event, Gap):
            self._offsets[event.stream] = event.offset + event.dropped
        else:
            assert isinstance(event, Exited)
            self._ended = True

    async def wait(self, timeout: float | None = None) -> ExecResult:
        """Gives how it ended, with its output, when it has ended.

        After ``timeout`` seconds it gives up with a :class:`dsec.InfrastructureError`; the command goes on.
        """
        await self._let_go()
        answer = await self._rpc.call(
            "ExecService/GetOp",
            {"session_id": self._session_id, "op_id": self.op_id, "wait": True},
            safe=timeout is None,
            timeout=timeout,
        )
        self._ended = True
        operation = answer.get("operation") or {}
        return ExecResult.read(operation.get("result") or {"op_id": self.op_id})

    async def write(self, data: str | bytes) -> None:
        """Feeds its standard input; it must have been started with ``stdin=True`` or a terminal."""
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, len(raw), 1 << 20):
            await self._feed(raw[at : at + (1 << 20)], False)

    async def close_stdin(self) -> None:
        """Says that nothing more comes on its standard input."""
        await self._feed(b"", True)

    async def _feed(self, data: bytes, eof: bool) -> None:
        # The offset makes repeating it safe.
        answer = await self._rpc.call(
            "ExecService/WriteStdin",
            {
                "session_id": self._session_id,
                "op_id": self.op_id,
                "offset": self._written,
                "data": data,
                "eof": eof,
            },
            timeout=None,
        )
        self._written = int(answer.get("next", self._written + len(data)))

    async def resize(self, rows: int, cols: int) -> None:
        """Changes the window of its terminal."""
        size = PtySize(rows, cols)
        await self._rpc.call(
            "ExecService/Resize",
            {
                "session_id": self._session_id,
                "op_id": self.op_id,
                "pty": {"rows": size.rows, "cols": size.cols},
            },
        )

    async def signal(self, signal: str | int, *, tree: bool = False) -> None:
        """Sends a signal to its process group, or to its whole tree, whatever it did to hide."""
        await self._rpc.call(
            "ExecService/Signal",
            {
                "session_id": self._session_id,
                "op_id": self.op_id,
                "signal": str(signal),
                "tree": tree,
            },
            safe=False,
        )

    async def kill(self) -> None:
        """Kills its whole process tree, and returns when it has ended. That it has already is no error."""
        try:
            await self.signal("SIGKILL", tree=True)
            await self.wait()
        except DSecError as e:
            if e.reason not in ("not_found", "conflict", "box_gone", "op_unknown"):
                raise

    async def _let_go(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun[0].aclose()

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._let_go()
        if not self._ended:
            await self.kill()

    def __repr__(self) -> str:
        return f"<AsyncProcess {self.op_id} of session {self._session_id}>"

"""What commands are and how they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Union

from . import _wire
from .errors import CommandError, DSecError, from_wire

#: A script for a shell, or a program and its arguments.
Command = Union[str, bytes, Sequence[Union[str, bytes]]]

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True)
class Output:
    """What was kept of a stream: its head, and its tail when some between was dropped."""

    head: bytes = b""
    tail: bytes = b""
    #: Bytes between head and tail.
    dropped: int = 0
    #: Bytes that the command wrote.
    total: int = 0

    @property
    def data(self) -> bytes:
        """What was kept, without a mark where something was dropped."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """What was kept as text; what is not UTF-8 is replaced, what was dropped is marked.

        >>> Output(b"begin", b"end", dropped=7, total=15).text
        'begin\\n[7 bytes dropped]\\nend'
        """
        if not self.dropped:
            return self.data.decode(errors="replace")
        head, tail = (part.decode(errors="replace") for part in (self.head, self.tail))
        return f"{head}\n[{self.dropped} bytes dropped]\n{tail}"

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Output:
        """Reads it from the wire."""
        return cls(
            _wire.to_bytes(message.get("head")),
            _wire.to_bytes(message.get("tail")),
            int(message.get("dropped", 0)),
            int(message.get("total", 0)),
        )


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. That it failed is no error of the platform: see :meth:`check`."""

    op_id: str
    #: 0 to 255; -1 when a signal ended it.
    exit_code: int = 0
    #: "SIGKILL" and the like, when a signal ended it.
    signal: str = ""
    #: The time-out ended it, and its whole process tree.
    timed_out: bool = False
    #: It was killed for want of memory.
    oom: bool = False
    #: The limit that ended or hindered it: "memory", "pids", "disk", "output" or none.
    limit: str = ""
    #: Seconds.
    wall_time: float = 0.0
    user_time: float = 0.0
    system_time: float = 0.0
    #: Bytes.
    peak_memory: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    #: Processes that live on in the background.
    survivors: int = 0
    out: Output = field(default_factory=Output)
    err: Output = field(default_factory=Output)
    #: Why it could not be started or followed.
    error: DSecError | None = None

    @property
    def ok(self) -> bool:
        """Whether it ran and ended with 0."""
        return (
            self.exit_code == 0 and not self.signal and not self.timed_out and self.error is None
        )

    @property
    def stdout(self) -> str:
        """What was kept of standard output, as text."""
        return self.out.text

    @property
    def stderr(self) -> str:
        """What was kept of standard error, as text."""
        return self.err.text

    def check(self) -> ExecResult:
        """Gives the result, or raises what kept the command from succeeding.

        >>> ExecResult("op", exit_code=3).check()
        Traceback (most recent call last):
        dsec.errors.CommandError: exit code 3
        """
        if self.error is not None:
            raise self.error
        if self.ok:
            return self
        why = f"exit code {self.exit_code}"
        if self.timed_out:
            why = "timed out"
        elif self.oom:
            why = "out of memory"
        elif self.signal:
            why = f"ended by {self.signal}"
        last = (self.stderr or self.stdout).strip()[-500:]
        raise CommandError(f"{why}: {last}" if last else why, self)

    @classmethod
    def read(
        cls, message: Mapping[str, Any], out: Output | None = None, err: Output | None = None
    ) -> ExecResult:
        """Reads it from the wire; ``out`` and ``err`` came before, in a stream."""
        number = message.get
        return cls(
            str(message.get("op_id", "")),
            int(number("exit_code", 0)),
            str(message.get("signal", "")),
            bool(message.get("timed_out", False)),
            bool(message.get("oom", False)),
            str(message.get("limit", "")),
            float(number("wall_ms", 0)) / 1e3,
            float(number("user_ms", 0)) / 1e3,
            float(number("sys_ms", 0)) / 1e3,
            int(number("peak_memory", 0)),
            int(number("read_bytes", 0)),
            int(number("write_bytes", 0)),
            int(number("survivors", 0)),
            out if out is not None else Output.read(message.get("stdout") or {}),
            err if err is not None else Output.read(message.get("stderr") or {}),
            from_wire(message["error"]) if message.get("error") else None,
        )


@dataclass(frozen=True)
class Started:
    """A command runs."""

    op_id: str
    pid: int


@dataclass(frozen=True)
class Chunk:
    """A command wrote something."""

    stream: StreamName
    #: Place in the stream, in bytes.
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        """The bytes as text; a character that is cut in two is replaced."""
        return self.data.decode(errors="replace")


@dataclass(frozen=True)
class Gap:
    """Output that is not kept any more."""

    stream: StreamName
    offset: int
    dropped: int


@dataclass(frozen=True)
class Exited:
    """A command has ended; the last event."""

    result: ExecResult


ExecEvent = Union[Started, Chunk, Gap, Exited]


@dataclass(frozen=True)
class Operation:
    """A command that the box remembers."""

    op_id: str
    pid: int
    argv: tuple[str, ...]
    shell: str
    user: str
    cwd: str
    pty: bool
    running: bool
    background: bool
    started: datetime | None
    survivors: int
    #: None while it runs.
    result: ExecResult | None

    @classmethod
    def read(cls, message: Mapping[str, Any]) -> Operation:
        """Reads it from the wire."""
        return cls(
            str(message.get("op_id", "")),
            int(message.get("pid", 0)),
            tuple(message.get("argv") or ()),
            str(message.get("shell_session", "")),
            str(message.get("user", "")),
            str(message.get("cwd", "")),
            bool(message.get("pty", False)),
            bool(message.get("running", False)),
            bool(message.get("background", False)),
            _wire.time_field(message, "started"),
            int(message.get("survivors", 0)),
            ExecResult.read(message["result"]) if message.get("result") else None,
        )


@dataclass(frozen=True)
class PtySize:
    """A terminal's window."""

    rows: int = 24
    cols: int = 80


def command_message(
    command: Command,
    *,
    op_id: str,
    shell: str = "",
    shell_session: str = "",
    env: Mapping[str, str] | None = None,
    cwd: str | bytes = "",
    user: str = "",
    stdin: str | bytes | None = None,
    stdin_stream: bool = False,
    pty: PtySize | None = None,
    timeout: float | None = None,
    max_output: int = 0,
    kill_on_output_limit: bool = False,
    background: bool = False,
) -> dict[str, Any]:
    """Writes a command."""
    m: dict[str, Any] = {"op_id": op_id}
    if isinstance(command, (str, bytes)):
        _wire.text_field(m, "script", command)
    else:
        argv: list[str | bytes] = list(command)
        try:
            plain = [a.decode() if isinstance(a, bytes) else a for a in argv]
            "".join(plain).encode()
            m["argv"] = plain
        except UnicodeError:
            m["argv_bytes"] = [
                _wire.from_bytes(a if isinstance(a, bytes) else a.encode(errors="surrogateescape"))
                for a in argv
            ]
    if cwd:
        _wire.text_field(m, "cwd", cwd)
    if stdin is not None:
        m["stdin"] = stdin.encode() if isinstance(stdin, str) else stdin
    if pty is not None:
        m["pty"] = {"rows": pty.rows, "cols": pty.cols}
    if timeout is not None:
        m["timeout_ms"] = max(1, round(timeout * 1000))
    given: dict[str, Any] = {
        "shell": shell,
        "shell_session": shell_session,
        "env": dict(env or {}),
        "user": user,
        "stdin_stream": stdin_stream,
        "max_output": max_output,
        "kill_on_output_limit": kill_on_output_limit,
        "background": background,
    }
    m.update({k: v for k, v in given.items() if v})
    return m


def read_event(message: Mapping[str, Any]) -> ExecEvent | None:
    """Reads an event of a stream; None for one of a newer server."""
    event = message.get("event") or {}
    if "started" in event:
        started = event["started"]
        return Started(str(started.get("op_id", "")), int(started.get("pid", 0)))
    if "output" in event:
        o = event["output"]
        return Chunk(_stream(o), int(o.get("offset", 0)), _wire.to_bytes(o.get("data")))
    if "gap" in event:
        g = event["gap"]
        return Gap(_stream(g), int(g.get("offset", 0)), int(g.get("dropped", 0)))
    if "exit" in event:
        return Exited(ExecResult.read(event["exit"]))
    return None


def _stream(message: Mapping[str, Any]) -> StreamName:
    return "stderr" if message.get("stream") in ("STREAM_STDERR", 2) else "stdout"

# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""One agent's life in one box."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

from .._exec_types import (
    Chunk,
    Command,
    ExecResult,
    Operation,
    PtySize,
    command_message,
)
from .._io import blocking
from .._retry import new_id
from .._types import AtDeadline, Inspection, Phase, SessionInfo, lifetime_ms
from ..errors import DSecError, UserError, from_wire
from .files import Files
from .process import Process
from .rpc import QUICK, Rpc

#: Seconds for which a call that was given up waits for the server to kill its command.
_GIVE_UP = 5.0


class Session:
    """A session: run commands in it, move files, suspend it, stop it.

    As a context manager it is stopped at the end, and everything of its box is gone.
    It is safe for concurrent use.

    >>> with client.create() as session:
    ...     result = session.exec("echo hello")
    ...     print(result.exit_code, result.stdout.strip())
    0 hello
    """

    def __init__(self, rpc: Rpc, id: str, info: SessionInfo | None = None) -> None:
        self._rpc = rpc
        #: The session's public id.
        self.id = id
        #: The session as it was last heard of; None before the first answer.
        self.info = info
        #: The files of its box.
        self.files = Files(rpc, id)

    # -- commands

    def exec(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        max_output: int = 0,
        kill_on_output_limit: bool = False,
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes = "",
        user: str = "",
        shell: str = "",
        shell_session: str = "",
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
        check: bool = False,
        op_id: str | None = None,
    ) -> ExecResult:
        """Runs a command and gives how it ended.

        A string is a script for a shell, a sequence is a program and its arguments.

        ``timeout`` (seconds) kills its whole process tree; what it printed is in the result.
        ``max_output`` bounds what is kept of each stream, as head and tail (1 MiB unless
        said). ``on_stdout`` and ``on_stderr`` get the bytes as they come. With ``check`` a
        command that fails is a :class:`dsec.CommandError`. The same ``op_id`` and command
        never run twice: a lost connection is repeated and gives the one result.

        A call that is given up, because it is cancelled, interrupted or a callback fails, kills
        its command's whole process tree. One with an ``op_id`` of the caller's goes on, for it
        can be asked for: ``session.process(op_id)``. So does what :meth:`start` or :meth:`spawn` began.

        >>> with client.create() as session:
        ...     print((session.exec(["sh", "-c", "exit 3"])).exit_code)
        ...     print((session.exec("cat", stdin="typed")).stdout)
        ...     print((session.exec("echo begun; sleep 60", timeout=0.2)).timed_out)
        3
        typed
        True
        """
        m = command_message(
            command,
            op_id=op_id or new_id(),
            shell=shell,
            shell_session=shell_session,
            env=env,
            cwd=cwd,
            user=user,
            stdin=stdin,
            timeout=timeout,
            max_output=max_output,
            kill_on_output_limit=kill_on_output_limit,
        )
        try:
            if on_stdout is not None or on_stderr is not None:
                result = self._follow(m, on_stdout, on_stderr)
            else:
                answer = self._rpc.call(
                    "ExecService/Run",
                    {"session_id": self.id, "command": m},
                    timeout=None if timeout is None else timeout + QUICK,
                )
                result = ExecResult.read(answer.get("result") or {})
        except DSecError:
            raise
        except (*blocking.Abandoned, Exception):
            if op_id is None:  # nobody else can ask for it
                blocking.finally_do(lambda: self._give_up(m["op_id"]))
            raise
        return result.check() if check else result

    def _give_up(self, op_id: str) -> None:
        """Kills a command that nobody waits for any more, also one that is only about to begin."""
        pauses = [0.05, 0.2, 0.5]
        while True:
            try:
                self._rpc.once(
                    "ExecService/Signal",
                    {"session_id": self.id, "op_id": op_id, "signal": "SIGKILL", "tree": True},
                    _GIVE_UP,
                )
                return
            except DSecError as e:
                if e.reason != "op_unknown" or not pauses:
                    return  # it has ended, or the server does not answer: the caller's failure counts
            blocking.sleep(pauses.pop(0))

    def _follow(
        self,
        m: dict[str, Any],
        on_stdout: Callable[[bytes], object] | None,
        on_stderr: Callable[[bytes], object] | None,
    ) -> ExecResult:
        process = Process(self._rpc, self.id, m["op_id"], m)
        process._start()
        for event in process:
            if isinstance(event, Chunk):
                hear = on_stdout if event.stream == "stdout" else on_stderr
                if hear is not None:
                    hear(event.data)
        return process.wait()

    def start(
        self,
        command: Command,
        *,
        stdin: bool = False,
        pty: PtySize | None = None,
        timeout: float | None = None,
        max_output: int = 0,
        kill_on_output_limit: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes = "",
        user: str = "",
        shell: str = "",
        op_id: str | None = None,
    ) -> Process:
        """Starts a command, to be followed, fed and signalled while it runs.

        >>> with client.create() as session:
        ...     with session.start("cat", stdin=True) as process:
        ...         process.write("typed later")
        ...         process.close_stdin()
        ...         print((process.wait()).stdout)
        typed later
        """
        m = command_message(
            command,
            op_id=op_id or new_id(),
            shell=shell,
            env=env,
            cwd=cwd,
            user=user,
            stdin_stream=stdin or pty is not None,
            pty=pty,
            timeout=timeout,
            max_output=max_output,
            kill_on_output_limit=kill_on_output_limit,
        )
        process = Process(self._rpc, self.id, m["op_id"], m)
        process._start()
        return process

    def pty(
        self,
        command: Command = ("/bin/sh", "-i"),
        *,
        rows: int = 24,
        cols: int = 80,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes = "",
        user: str = "",
        timeout: float | None = None,
    ) -> Process:
        """Starts a command on a terminal of that size."""
        return self.start(
            command, pty=PtySize(rows, cols), env=env, cwd=cwd, user=user, timeout=timeout
        )

    def spawn(
        self,
        command: Command,
        *,
        timeout: float | None = None,
        max_output: int = 0,
        env: Mapping[str, str] | None = None,
        cwd: str | bytes = "",
        user: str = "",
        shell: str = "",
        op_id: str | None = None,
    ) -> Process:
        """Starts a command in the background: it does not keep the session from idling away."""
        m = command_message(
            command,
            op_id=op_id or new_id(),
            shell=shell,
            env=env,
            cwd=cwd,
            user=user,
            timeout=timeout,
            max_output=max_output,
            background=True,
        )
        self._rpc.call("ExecService/Run", {"session_id": self.id, "command": m})
        return Process(self._rpc, self.id, m["op_id"], m)

    def shell(self, name: str = "main") -> Shell:
        """Gives a shell whose directory, variables and functions last from call to call.

        >>> with client.create() as session:
        ...     shell = session.shell()
        ...     _ = shell.run("cd /tmp; x=7")
        ...     print((shell.run("pwd; echo $x")).stdout.split())
        ['/tmp', '7']
        """
        return Shell(self, name)

    def process(self, op_id: str) -> Process:
        """Gives a handle on an operation by its id, without asking the server."""
        return Process(self._rpc, self.id, op_id)

    def operations(self) -> list[Operation]:
        """Lists the commands that the box remembers, running and lately ended."""
        answer = self._rpc.call("ExecService/ListOps", {"session_id": self.id})
        return [Operation.read(m) for m in answer.get("operations") or ()]

    def dial(self, address: str, *, network: str = "tcp") -> blocking.Connection:
        """Connects to an address in the box, such as ``"localhost:8080"`` or a socket's path."""
        target = f"/v1/sessions/{self.id}/dial?network={quote(network)}&addr={quote(address, safe='')}"
        return blocking.dial(self._rpc.config, target)

    # -- life

    def refresh(self) -> SessionInfo:
        """Asks for the session as it is now."""
        return self._heard(
            self._rpc.call("SessionService/Get", {"session_id": self.id}), "session"
        )

    def wait(self, *until: Phase, timeout: float | None = None) -> SessionInfo:
        """Waits until it is in, or past, one of the phases (RUNNING), or ``timeout`` seconds are over."""
        m: dict[str, Any] = {"session_id": self.id, "until": list(until)}
        if timeout is not None:
            m["timeout_ms"] = max(1, round(timeout * 1000))
        answer = self._rpc.call(
            "SessionService/Wait", m, timeout=None if timeout is None else timeout + QUICK
        )
        return self._heard(answer, "session")

    def inspect(self) -> Inspection:
        """Gives the session with its box's live figures."""
        answer = self._rpc.call("SessionService/Inspect", {"session_id": self.id})
        return Inspection(self._heard(answer, "session"), answer.get("box") or {})

    def heartbeat(self) -> None:
        """Says that its owner lives. A session of a client's lease does not need it."""
        self._rpc.call("SessionService/Heartbeat", {"session_id": self.id})

    def set_deadline(
        self, seconds: float | None, *, then: AtDeadline | None = None
    ) -> SessionInfo:
        """Moves the moment at which it is stopped, or suspended, to ``seconds`` from now; None: never.

        Without ``then`` what is done stays as it was ("stop" at first). When it returns, the earlier
        deadline has not acted and never will. It does not act on a suspended session, but when that
        is resumed; and one that passed while the server was down acts at once at the server's start.

        >>> with client.create(lifetime=60) as session:
        ...     info = session.set_deadline(3600, then="suspend")
        ...     print(info.at_deadline, (session.set_deadline(None)).deadline)
        suspend None
        """
        return self._deadline(seconds, then, False)

    def extend(self, seconds: float) -> SessionInfo:
        """Moves the deadline to ``seconds`` from now, if that is later than it is; a keep-alive.

        >>> with client.create(lifetime=600) as session:
        ...     before = session.info.deadline
        ...     print((session.extend(60)).deadline == before)
        True
        """
        return self._deadline(seconds, None, True)

    def _deadline(
        self, seconds: float | None, then: AtDeadline | None, extend: bool
    ) -> SessionInfo:
        m: dict[str, Any] = {"session_id": self.id}
        if seconds is not None:
            m["lifetime_ms"] = lifetime_ms(seconds)
        if then is not None:
            m["at_deadline"] = then
        if extend:
            m["extend"] = True
        return self._heard(self._rpc.call("SessionService/SetDeadline", m), "session")

    def suspend(self) -> SessionInfo:
        """Freezes its processes. The next operation resumes it. Idempotent."""
        return self._change("Suspend", {})

    def resume(self) -> SessionInfo:
        """Thaws its processes. Idempotent."""
        return self._change("Resume", {})

    def stop(self, reason: str = "") -> SessionInfo:
        """Ends it, and returns when nothing of its box is left. Idempotent."""
        return self._change("Stop", {"reason": reason} if reason else {})

    def _change(self, what: str, more: dict[str, Any]) -> SessionInfo:
        answer = self._rpc.call(
            "SessionService/" + what, {"selector": {"ids": [self.id]}, **more}, timeout=None
        )
        results: list[dict[str, Any]] = answer.get("results") or [{}]
        info = self._heard(results[0], "session")
        if results[0].get("error"):
            raise from_wire(results[0]["error"])
        return info

    def _heard(self, answer: Mapping[str, Any], field: str) -> SessionInfo:
        self.info = SessionInfo.read(answer.get(field) or {"id": self.id})
        return self.info

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except DSecError as e:
            # That it is gone already, for whatever reason, is what was wanted.
            if e.reason != "not_found" and error is None:
                raise

    def __repr__(self) -> str:
        return f"<Session {self.id}>"


class Shell:
    """A named shell of a session. As a context manager it is closed at the end."""

    def __init__(self, session: Session, name: str) -> None:
        if not name:
            raise UserError("a shell has a name", reason="invalid_argument")
        self.session = session
        self.name = name

    def run(
        self,
        script: str | bytes,
        *,
        timeout: float | None = None,
        max_output: int = 0,
        stdin: str | bytes | None = None,
        on_stdout: Callable[[bytes], object] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
        check: bool = False,
        op_id: str | None = None,
    ) -> ExecResult:
        """Runs a script where the last one left off. A stuck one never makes the shell unusable."""
        return self.session.exec(
            script,
            shell_session=self.name,
            timeout=timeout,
            max_output=max_output,
            stdin=stdin,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            check=check,
            op_id=op_id,
        )

    def close(self) -> None:
        """Ends it and forgets its state."""
        self.session._rpc.call(
            "ExecService/CloseShell",
            {"session_id": self.session.id, "shell_session": self.name},
        )

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DSecError as e:
            if e.reason not in ("not_found", "box_gone") and error is None:
                raise

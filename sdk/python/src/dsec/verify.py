"""Grading in a fresh box, so that what an agent did to its own cannot grade it.

A :class:`Verifier` makes a box of a template that the agent never touched, puts the named files of the
agent's box into it, as data, and then the trusted files, and runs the grading there. Whatever else the agent
changed (interpreters, ``conftest.py``, ``ld.so.preload``, PATH) stays behind with its box.

>>> verifier = Verifier(files=["answer.py"], cases=[Case("python3 answer.py", stdin="6 7", stdout="42")])
>>> with dsec.Client() as client, client.create() as session:
...     _ = session.files.write("answer.py", "a, b = map(int, input().split()); print(a * b)")
...     print(verifier.grade(client, session).passed)
True

What runs in the fresh box is still the agent's code. A ``command`` that loads it into its own process
(as pytest does) believes what that code lets it say; ``cases`` are compared outside the box,
where no code of the agent runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from ._async.client import AsyncClient
from ._async.session import AsyncSession
from ._blame import blame, settle
from ._collect import MAX_BYTES, collect
from ._exec_types import Command, ExecResult
from ._sync.client import Client
from ._sync.session import Session
from .errors import DSecError, UserError

__all__ = ["Case", "Verdict", "Verifier"]

T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """A run of the agent's program, judged by what it prints."""

    command: Command
    stdin: str | bytes = b""
    #: What it must print; blanks at the ends of lines and of the whole are not compared. None: anything.
    stdout: str | None = None
    exit_code: int = 0


@dataclass(frozen=True)
class Verdict:
    """How a grading ended. That the platform failed is no verdict: it is raised."""

    #: From 0 to 1: the part of the checks that passed.
    reward: float
    #: Why not everything passed, for people.
    reason: str = ""
    #: Named files that were not taken, and why.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: How the runs ended, the command's last.
    results: Sequence[ExecResult] = ()

    @property
    def passed(self) -> bool:
        """Whether everything passed."""
        return self.reward >= 1.0


@dataclass(frozen=True)
class Verifier:
    """How to grade what an agent made. It has no state: one grades any number of agents.

    A named file that is missing, is no regular file, is a symbolic link, or is larger than
    ``max_bytes`` (or all together are) is refused; with ``optional`` naming it the grading goes on
    without it, else the verdict is 0.
    """

    #: Files to take from the agent's box: absolute, or below /workspace. In the fresh box they have the same names.
    files: Sequence[str] = ()
    #: Those of them that may be missing.
    optional: Sequence[str] = ()
    #: Files of the grader. They are written last, so they win over the agent's.
    trusted: Mapping[str, str | bytes] = field(default_factory=dict)
    cases: Sequence[Case] = ()
    #: Passes when it exits with 0.
    command: Command | None = None
    #: Who runs them; the files are this user's too.
    user: str = ""
    #: Of the fresh box; None: that of the agent's box, in the same version.
    template: str | None = None
    spec: Mapping[str, Any] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    #: Seconds for each run.
    timeout: float = 60.0
    max_bytes: int = MAX_BYTES

    def __post_init__(self) -> None:
        if not self.cases and self.command is None:
            raise UserError(
                "it checks nothing, so that everything would pass",
                reason="invalid_argument",
                object="verifier",
                remedy="give it cases or a command",
            )

    def grade(self, client: Client, session: Session) -> Verdict:
        """Grades the agent's session, which may have ended by its own fault.

        Only failures of the platform are raised: :class:`dsec.InfrastructureError`, and what is wrong
        with the verifier itself.
        """
        # With the blocking client nothing is ever waited for: the coroutine runs through.
        return _drive(self._grade(client, session))

    async def grade_async(self, client: AsyncClient, session: AsyncSession) -> Verdict:
        """Is :meth:`grade` for an event loop."""
        return await self._grade(client, session)

    async def _grade(self, client: Any, agent: Any) -> Verdict:
        template = self.template
        if template is None:
            info = agent.info or await settle(agent.refresh())
            template = info.template
        taken = await collect(agent, self.files, self.max_bytes)
        needed = [f"{path}: {why}" for path, why in taken.refused.items() if path not in self.optional]
        if needed:
            return Verdict(0.0, "; ".join(needed), taken.refused)
        labels = {"dsec-verify": agent.id}
        fresh = await _made(client.create(template, spec=self.spec, env=self.env, labels=labels))
        try:
            for path, data in taken.data.items():
                try:
                    await settle(fresh.files.write(path, data, user=self.user))
                except DSecError as e:
                    if e.error_class != "limit" or e.retryable:
                        raise
                    return Verdict(0.0, str(e), taken.refused)  # it does not fit
            for path, content in self.trusted.items():
                await settle(fresh.files.write(path, content, user=self.user))
            return await self._judge(fresh, taken.refused)
        finally:
            try:
                await settle(fresh.stop("graded"))
            except DSecError as e:
                if e.reason != "not_found":
                    raise

    async def _judge(self, fresh: Any, refused: Mapping[str, str]) -> Verdict:
        results: list[ExecResult] = []
        wrong: list[str] = []
        for at, case in enumerate(self.cases):
            why = await self._run(fresh, case.command, case.stdin, results)
            if not why:
                why = _differs(case, results[-1])
            if why:
                wrong.append(f"case {at}: {why}")
        if self.command is not None:
            why = await self._run(fresh, self.command, b"", results)
            if not why and not results[-1].ok:
                why = f"exit code {results[-1].exit_code}"
            if why:
                wrong.append(f"command: {why}")
        checks = len(self.cases) + (self.command is not None)
        return Verdict(1.0 - len(wrong) / checks, "; ".join(wrong), refused, tuple(results))

    async def _run(
        self, fresh: Any, command: Command, stdin: str | bytes, results: list[ExecResult]
    ) -> str:
        """Runs something in the fresh box, and says why it did not come to an end of its own."""
        try:
            result = await settle(
                fresh.exec(command, stdin=stdin or None, timeout=self.timeout, user=self.user)
            )
        except DSecError as e:
            why = await blame(fresh, e)
            if why.error_class == "infrastructure":
                raise why from e
            return str(why)  # what the agent left there broke its box
        results.append(result)
        if result.error is not None:
            return str(result.error)
        if result.timed_out:
            return f"timed out after {self.timeout} s"
        if result.oom:
            return "out of memory"
        return ""


def _differs(case: Case, result: ExecResult) -> str:
    if result.signal or result.exit_code != case.exit_code:
        return result.signal or f"exit code {result.exit_code}"
    if case.stdout is not None and _lines(result.stdout) != _lines(case.stdout):
        return "the output differs"
    return ""


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


async def _made(creating: Any) -> Any:
    """Gives the session: the blocking client's create is its result."""
    return await creating if isinstance(creating, Awaitable) else creating


def _drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    coroutine.close()
    raise RuntimeError("a call of the blocking client waited")

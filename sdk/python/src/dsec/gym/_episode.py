"""One episode: an agent's turns in one box."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from dsec import Client, DSecError, ExecResult, Session, UserError
from dsec._blame import blame
from dsec.verify import Verdict, Verifier, _drive

from ._task import Task

Action = Union[str, Mapping[str, Any]]

#: What a tool does: the text of its answer, or a command's end.
Tool = Callable[..., Union[str, ExecResult]]

#: The tool, and the command, that ends an episode.
SUBMIT = "submit"


@dataclass(frozen=True)
class Step:
    """One turn."""

    action: Action
    #: What the agent gets to see.
    output: str
    #: How its command ended; None for tools that run none, and for errors.
    result: ExecResult | None = None
    #: Why it could not be done.
    error: DSecError | None = None


@dataclass
class Episode:
    """An episode, as checkers and tools see it."""

    client: Client
    task: Task
    seed: int
    session: Session
    #: Seconds for each command.
    timeout: float
    max_output: int
    steps: list[Step] = field(default_factory=list)
    submitted: bool = False
    #: How a :class:`dsec.verify.Verifier` judged it; None before it did.
    verdict: Verdict | None = None

    @classmethod
    def begin(cls, client: Client, task: Task, seed: int, timeout: float, max_output: int) -> Episode:
        """Makes the box and prepares it. The seed is in its environment, as DSEC_SEED and PYTHONHASHSEED."""
        env = {"DSEC_SEED": str(seed), "PYTHONHASHSEED": str(seed % 2**32), **task.env}
        session = client.create(
            task.template, spec=task.spec, env=env, secrets=task.secrets, code=task.code
        )
        try:
            for path, data in task.files.items():
                session.files.write(path, data, user=task.user)
            if task.setup:
                session.exec(task.setup, check=True)
        except BaseException:
            session.stop("its task could not be prepared")
            raise
        return cls(client, task, seed, session, timeout, max_output)

    def end(self) -> None:
        """Stops the box."""
        try:
            self.session.stop("the episode is over")
        except DSecError as e:
            if e.reason != "not_found":
                raise

    def act(self, action: Action, tools: Mapping[str, Tool]) -> Step:
        """Takes a turn. What the agent did wrong is told to it in the output; only
        failures that are not its own are raised."""
        step = self._act(action, tools)
        self.steps.append(step)
        return step

    def _act(self, action: Action, tools: Mapping[str, Tool]) -> Step:
        try:
            name, arguments = _call(action)
            if name == SUBMIT:
                self.submitted = True
                return Step(action, "")
            if name in tools:
                done: str | ExecResult = _bound(tools[name], self, arguments)
            else:
                done = _bound(_builtin(name, tools), self, arguments)
        except DSecError as e:
            why = blamed(self.session, e)
            if why.error_class == "infrastructure":
                raise why from e
            return Step(action, f"[error: {why}]\n"[: self.max_output], error=why)
        if isinstance(done, ExecResult):
            if done.error is not None:
                return Step(action, f"[error: {done.error}]\n", done, done.error)
            return Step(action, told(done, self.timeout), done)
        return Step(action, done)

    def run(self, command: str) -> ExecResult:
        """Runs a command in the agent's own shell, which keeps directory and variables."""
        return self.session.exec(
            command,
            shell_session="agent",
            user=self.task.user,
            timeout=self.timeout,
            max_output=self.max_output,
        )

    def grade(self) -> float:
        """Gives the reward. What the agent broke is worth 0; other failures are raised."""
        checker = self.task.checker
        if checker is None:
            return 0.0
        if isinstance(checker, Verifier):  # it tells the agent's faults by its verdict
            self.verdict = checker.grade(self.client, self.session)
            return self.verdict.reward
        try:
            return float(checker(self))
        except DSecError as e:
            why = blamed(self.session, e)
            if why.error_class == "infrastructure" or why.retryable:
                raise why from e
            return 0.0

    def render(self) -> str:
        """Gives the turns as a terminal would have shown them."""
        lines = [self.task.prompt.rstrip("\n")] if self.task.prompt else []
        for step in self.steps:
            what = step.action if isinstance(step.action, str) else json.dumps(dict(step.action), default=str)
            lines.append(f"$ {what}")
            if step.output:
                lines.append(step.output.rstrip("\n"))
        return "\n".join(lines) + "\n"


def blamed(session: Session, error: DSecError) -> DSecError:
    """Is :func:`blame` for the blocking client."""
    return _drive(blame(session, error))


def _call(action: Action) -> tuple[str, Mapping[str, Any]]:
    if isinstance(action, str):
        return (SUBMIT, {}) if action.strip() == SUBMIT else ("exec", {"command": action})
    call = action.get("function", action)
    name, arguments = call.get("name"), call.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except ValueError as e:
            raise _wrong(f"the arguments are no JSON: {e}") from e
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise _wrong("a tool call has a name, and a mapping of arguments")
    return name, arguments


def _bound(tool: Tool, episode: Episode, arguments: Mapping[str, Any]) -> str | ExecResult:
    try:
        inspect.signature(tool).bind(episode, **arguments)
    except TypeError as e:
        raise _wrong(str(e)) from e
    return tool(episode, **arguments)


def _wrong(message: str) -> UserError:
    return UserError(message, reason="invalid_argument", object="tool call", remedy="correct the call")


def _builtin(name: str, more: Mapping[str, Tool]) -> Tool:
    if name not in BUILTIN:
        known = ", ".join(sorted({*BUILTIN, *more, SUBMIT}))
        raise UserError(f"there is no tool {name!r}", reason="not_found", object="tool call", remedy=f"use one of {known}")
    return BUILTIN[name]


def _exec(episode: Episode, command: str) -> ExecResult:
    if not isinstance(command, str):
        raise _wrong("command must be text")
    return episode.run(command)


def _read(episode: Episode, path: str) -> str:
    data = bytearray()
    for chunk in episode.session.files.stream(str(path), user=episode.task.user):
        data += chunk
        if len(data) > episode.max_output:
            return data[: episode.max_output].decode(errors="replace") + "\n[more is left]\n"
    return data.decode(errors="replace")


def _write(episode: Episode, path: str, content: str) -> str:
    info = episode.session.files.write(str(path), str(content), user=episode.task.user)
    return f"[{info.size} bytes written]\n"


#: The tools that every episode has, beside "submit".
BUILTIN: Mapping[str, Tool] = {"exec": _exec, "read": _read, "write": _write}


def told(result: ExecResult, timeout: float) -> str:
    """Gives what a terminal would have shown of a command, and what it would not have told."""
    text = result.stdout + result.stderr
    note = ""
    if result.timed_out:
        note = f"[timed out after {timeout:g} s]"
    elif result.oom:
        note = "[out of memory]"
    elif result.signal:
        note = f"[ended by {result.signal}]"
    elif result.exit_code:
        note = f"[exit code {result.exit_code}]"
    if note and text and not text.endswith("\n"):
        text += "\n"
    return text + (note + "\n" if note else "")

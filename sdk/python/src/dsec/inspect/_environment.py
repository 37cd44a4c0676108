"""A box as inspect-ai sees it."""

from __future__ import annotations

import posixpath
import signal
from typing import Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel

import dsec
from dsec import AsyncSession, DSecError

from ._boxes import LABEL, boxes, forget
from ._config import DSecSandboxConfig
from ._run import run

#: The most that the server keeps of a stream.
_MOST_OUTPUT = 64 << 20


@sandboxenv(name="dsec")
class DSecSandboxEnvironment(SandboxEnvironment):
    """A session of DSec.

    Failures of the platform are ``SandboxUnavailableError``: they are never told as a
    command's output. A command whose time is over is not run again whatever
    ``timeout_retry`` says, because only the command itself can have taken the time, and
    running it twice would show.
    """

    def __init__(self, session: AsyncSession, config: DSecSandboxConfig) -> None:
        super().__init__()
        #: For what inspect-ai's interface does not offer.
        self.session = session
        self._config = config

    # -- life

    @classmethod
    def config_files(cls) -> list[str]:
        return ["dsec.yaml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return DSecSandboxConfig.model_validate(config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        wanted = DSecSandboxConfig.of(config).named().values()
        state = boxes()
        for template in {box.template or "base" for box in wanted}:
            await state.client.templates.get(template)  # before hundreds of samples miss it
        state.started += 1

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        state = boxes()
        made: dict[str, SandboxEnvironment] = {}
        try:
            for name, box in DSecSandboxConfig.of(config).named().items():
                labels = {"task": task_name[:255]} | box.labels
                session = await state.make(box.template, box.sandbox_spec(), box.env, labels)
                made[name] = cls(session, box)
        except BaseException:
            await state.stop([_session(e).id for e in made.values()])
            raise
        return made

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        if not interrupted:  # else it waits for task_cleanup, which knows whether it is wanted
            await boxes().stop([_session(e).id for e in environments.values()])

    @classmethod
    async def task_cleanup(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool
    ) -> None:
        state = boxes()
        state.started -= 1
        if state.started > 0:
            return
        forget()
        left = await state.close(cleanup)
        if left:
            print("\nDSec sessions that were not stopped:", *left, sep="\n  ")
            print("To stop them: inspect sandbox cleanup dsec [ID]")

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        async with dsec.AsyncClient(lease_ttl=None) as client:
            chosen: dict[str, Any] = {"ids": [id]} if id else {"labels": LABEL}
            for outcome in await client.stop(reason="inspect sandbox cleanup", **chosen):
                outcome.unwrap()
                print("stopped", outcome.session_id)

    @classmethod
    def default_concurrency(cls) -> int | None:
        return None  # the server queues what does not fit

    def default_polling_interval(self) -> float:
        return 0.2

    # -- commands

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            result = await run(
                self.session,
                cmd,
                input=input.encode() if isinstance(input, str) else input,
                cwd=self._path(cwd or ""),
                env=env or {},
                user=user or self._config.user,
                timeout=timeout,
                max_output=min(limit, _MOST_OUTPUT),
            )
            if result.error is not None:
                raise result.error
        except DSecError as e:
            return _not_run(e, cmd, user)
        if result.timed_out:
            raise TimeoutError(f"{cmd[0]} was killed after {timeout} s")
        if result.out.dropped or result.err.dropped:
            whole = result.out if result.out.dropped else result.err
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, whole.text)
        code = result.exit_code
        if result.signal:
            code = 128 + signal.Signals[result.signal].value
        stderr = result.stderr
        if result.oom:
            stderr += "out of memory: the box's mem_limit was reached\n"
        return ExecResult(code == 0, code, result.stdout, stderr)

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        info = await self.session.refresh()
        if info.phase not in ("RUNNING", "SUSPENDED"):
            raise ConnectionError(f"session {info.id} is {info.phase}")
        who = user or self._config.user
        command = f"dsec shell {'-u ' + who + ' ' if who else ''}{info.id}"
        return SandboxConnection(type="dsec", command=command, container=info.id)

    # -- files

    async def write_file(self, file: str, contents: str | bytes) -> None:
        path = self._path(file)
        try:
            await self.session.files.write(path, contents, user=self._config.user)
        except DSecError as e:
            raise _file_error(e, file) from e

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        data = bytearray()
        try:
            chunks = self.session.files.stream(self._path(file), user=self._config.user)
            async for chunk in chunks:
                data += chunk
                if len(data) > limit:
                    await chunks.aclose()  # type: ignore[attr-defined]
                    raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        except DSecError as e:
            raise _file_error(e, file) from e
        return data.decode() if text else bytes(data)

    def _path(self, path: str) -> str:
        return posixpath.join(self._config.working_dir, path)


def _session(environment: SandboxEnvironment) -> AsyncSession:
    return environment.as_type(DSecSandboxEnvironment).session


def _gone(e: DSecError) -> bool:
    return e.error_class == "infrastructure" or e.reason in ("box_gone", "box_tampered", "owner_lost")


def _not_run(e: DSecError, cmd: list[str], user: str | None) -> ExecResult[str]:
    """Tells why a command did not run: as its failure, if it is the command's."""
    if _gone(e) or e.object.startswith("session "):
        raise SandboxUnavailableError(str(e)) from e
    if e.object.startswith("user "):
        raise SandboxUserUnsupportedError(f"user {user}: {e}") from e
    if e.reason == "forbidden":
        raise PermissionError(f"{cmd[0]}: permission denied: {e}") from e
    code = 127 if e.reason == "not_found" else 126
    return ExecResult(False, code, "", f"{e}\n")


def _file_error(e: DSecError, file: str) -> Exception:
    """Gives the error of Python that says the same."""
    if _gone(e) or e.object.startswith("session "):
        return SandboxUnavailableError(str(e))
    if e.reason == "not_found":
        return FileNotFoundError(f"{file}: no such file: {e}")
    if e.reason == "forbidden":
        return PermissionError(f"{file}: permission denied: {e}")
    if "directory" in e.message and "not a directory" not in e.message:
        return IsADirectoryError(f"{file}: is a directory: {e}")
    if e.reason == "timed_out":
        return TimeoutError(f"{file}: {e}")
    return OSError(f"{file}: {e}")

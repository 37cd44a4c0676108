"""Commands whose arguments or input are larger than one message may be."""

from __future__ import annotations

import asyncio
import shlex
import uuid

import anyio

from dsec import AsyncProcess, AsyncSession, DSecError, ExecResult

#: What one message carries of arguments and environment, and of input.
_ARGUMENTS = 700 << 10
_INPUT = 8 << 20


async def run(
    session: AsyncSession,
    cmd: list[str],
    *,
    input: bytes | None,
    cwd: str,
    env: dict[str, str],
    user: str,
    timeout: float | None,
    max_output: int,
) -> ExecResult:
    """Runs a command of any size. Passing ``max_output`` ends it."""
    if sum(len(a.encode(errors="surrogateescape")) + 1 for a in cmd) > _ARGUMENTS:
        return await _by_file(session, cmd, input, cwd, env, user, timeout, max_output)
    if input is None or len(input) <= _INPUT:
        op_id = uuid.uuid4().hex
        try:
            return await session.exec(
                cmd,
                stdin=input,
                cwd=cwd,
                env=env,
                user=user,
                timeout=timeout,
                max_output=max_output,
                kill_on_output_limit=True,
                op_id=op_id,
            )
        except asyncio.CancelledError:
            # A command with an id of one's own goes on when nobody waits for it any more.
            with anyio.move_on_after(10, shield=True):
                await session.process(op_id).kill()
            raise
    process = await session.start(
        cmd,
        stdin=True,
        cwd=cwd,
        env=env,
        user=user,
        timeout=timeout,
        max_output=max_output,
        kill_on_output_limit=True,
    )
    async with process:
        feeding = asyncio.ensure_future(_feed(process, input))
        try:
            return await process.wait()
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def _feed(process: AsyncProcess, input: bytes) -> None:
    try:
        await process.write(input)
        await process.close_stdin()
    except DSecError:
        return  # it ended without reading everything, as a pipe's writer would find


async def _by_file(
    session: AsyncSession,
    cmd: list[str],
    input: bytes | None,
    cwd: str,
    env: dict[str, str],
    user: str,
    timeout: float | None,
    max_output: int,
) -> ExecResult:
    """Has a shell of the box read the command from a file."""
    path = f"/tmp/.command-{uuid.uuid4().hex}"
    await session.files.write(path, "exec " + shlex.join(cmd) + "\n", mode=0o644)
    try:
        return await run(
            session,
            ["/bin/sh", path],
            input=input,
            cwd=cwd,
            env=env,
            user=user,
            timeout=timeout,
            max_output=max_output,
        )
    finally:
        await session.files.remove(path)

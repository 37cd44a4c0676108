"""The files of a session's box."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any
from urllib.parse import quote_from_bytes

from .. import _tar, _wire
from .._io import aio, local
from .._retry import Lost, Retry, new_id
from .._types import FileChange, FileInfo
from ..errors import DSecError, UserError
from .rpc import AsyncRpc

#: A path in a box: absolute, below /workspace, or below the home (``~/…``).
Path = str | bytes

_Infos = list[FileInfo]


class AsyncFiles:
    """The files of a box. Paths are resolved inside it; relative ones are below /workspace.

    >>> async with client.create() as session:
    ...     _ = await session.files.write("notes/a.txt", "hello")
    ...     print(await session.files.read_text("notes/a.txt"))
    ...     print([f.name for f in await session.files.list("notes")])
    hello
    ['a.txt']
    """

    def __init__(self, rpc: AsyncRpc, session_id: str) -> None:
        self._rpc = rpc
        self._id = session_id

    # -- bytes

    async def read(self, path: Path, *, user: str = "") -> bytes:
        """Gives a file's content."""
        target = self._target("files", path, user=user)

        async def once() -> bytes:
            stream = await self._rpc.open("GET", target)
            try:
                return await stream.read()
            finally:
                await stream.aclose()

        return await self._rpc.retry(once, True)

    async def read_text(
        self, path: Path, *, user: str = "", encoding: str = "utf-8", errors: str = "strict"
    ) -> str:
        """Gives a file's content as text."""
        return (await self.read(path, user=user)).decode(encoding, errors)

    async def stream(self, path: Path, *, user: str = "") -> AsyncIterator[bytes]:
        """Gives a file's content bit by bit; a lost connection is taken up where it broke."""
        target = self._target("files", path, user=user)
        at, tag = 0, ""
        attempts: Retry | None = None
        while True:
            opened: aio.Stream | None = None
            try:
                resuming = {"Range": f"bytes={at}-", "If-Range": tag} if at else {}
                opened = await self._rpc.open("GET", target, resuming)
                if at and opened.status != 206:
                    raise UserError(
                        "it changed while it was read",
                        reason="conflict",
                        object=f"file {path!r}",
                        remedy="read it again",
                    )
                tag = opened.headers.get("Etag", "")
                async for data in opened.chunks():
                    at += len(data)
                    attempts = None
                    yield data
                return
            except DSecError as e:
                if attempts is None:
                    attempts = self._rpc.attempts()
                pause = attempts.after(e, aio.now())
                if pause is None or (at and not tag):
                    raise
            finally:
                if opened is not None:
                    await opened.aclose()
            await aio.sleep(pause)

    async def write(
        self,
        path: Path,
        data: str | bytes | AsyncIterable[bytes],
        *,
        mode: int | None = None,
        parents: bool = True,
        append: bool = False,
        user: str = "",
    ) -> FileInfo:
        """Writes a file, text as UTF-8. The old one stays until the new one is whole."""
        target = self._target(
            "files",
            path,
            user=user,
            op_id=new_id(),
            parents="true" if parents else "",
            append="true" if append else "",
            mode=f"{mode:o}" if mode is not None else "",
        )
        body: Any = data.encode() if isinstance(data, str) else data
        return FileInfo.read((await self._put(target, body)).get("info") or {})

    async def _put(self, target: str, body: Any) -> _wire.Message:
        async def once() -> _wire.Message:
            stream = await self._rpc.open("PUT", target, _BYTES, body)
            try:
                data = await stream.read()
            finally:
                await stream.aclose()
            return _wire.decode(data) if data.strip() else {}

        if isinstance(body, bytes):
            return await self._rpc.retry(once, True)  # the op_id makes it safe
        return await once()  # what was read of an iterator does not come again

    async def download(self, path: Path, to: str | os.PathLike[str], *, user: str = "") -> None:
        """Copies a file out, without holding it in memory."""
        await local.save(to, self.stream(path, user=user))

    async def upload(
        self,
        source: str | os.PathLike[str],
        path: Path,
        *,
        mode: int | None = None,
        parents: bool = True,
        user: str = "",
    ) -> FileInfo:
        """Copies a local file in, without holding it in memory."""
        return await self.write(path, local.load(source), mode=mode, parents=parents, user=user)

    # -- trees

    async def stream_tar(self, path: Path, *, user: str = "") -> AsyncIterator[bytes]:
        """Gives a tree as a tar, bit by bit."""
        opened = await self._rpc.open("GET", self._target("tar", path, user=user))
        try:
            async for data in opened.chunks():
                yield data
        finally:
            await opened.aclose()

    async def write_tar(
        self, path: Path, data: bytes | AsyncIterable[bytes], *, user: str = ""
    ) -> None:
        """Unpacks a tar (plain, gzip or zstd) below ``path``."""
        await self._put(self._target("tar", path, user=user, op_id=new_id()), data)

    async def download_dir(
        self, path: Path, to: str | os.PathLike[str], *, user: str = ""
    ) -> None:
        """Copies a tree out. Nothing is written outside ``to``, whatever the box sends."""
        with _tar.spool() as spool:
            async for data in self.stream_tar(path, user=user):
                await local.in_thread(spool.write, data)
            await local.in_thread(_tar.unpack, spool, to)

    async def upload_dir(
        self, source: str | os.PathLike[str], path: Path, *, user: str = ""
    ) -> None:
        """Copies a local tree in: what is in ``source`` is then in ``path``."""
        with _tar.spool() as spool:
            await local.in_thread(_tar.pack, source, spool)
            await self.write_tar(path, local.load(spool), user=user)

    # -- names

    async def stat(self, path: Path, *, follow: bool = True) -> FileInfo:
        """Describes a file."""
        answer = await self._call("Stat", {"follow": follow}, path=path)
        return FileInfo.read(answer.get("info") or {})

    async def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        try:
            await self.stat(path, follow=False)
        except DSecError as e:
            if e.reason == "not_found" and not e.object.startswith("session"):
                return False
            raise
        return True

    async def list(self, path: Path = ".", *, depth: int = 1) -> _Infos:
        """Lists a directory, and those in it down to ``depth`` levels."""
        m = self._message({"depth": depth}, path=path)

        async def once() -> _Infos:
            found: _Infos = []
            stream = await self._rpc.stream("FileService/ListDir", m)
            try:
                async for message in stream.messages():
                    found += [FileInfo.read(e) for e in message.get("entries") or ()]
            finally:
                await stream.aclose()
            return found

        return await self._rpc.retry(once, True)

    async def mkdir(
        self, path: Path, *, mode: int = 0, parents: bool = True, user: str = ""
    ) -> None:
        """Makes a directory; with ``parents`` one that exists is fine."""
        await self._call(
            "MakeDir", {"mode": mode, "parents": parents, "user": user, **_op()}, path=path
        )

    async def move(
        self, source: Path, to: Path, *, overwrite: bool = False, user: str = ""
    ) -> None:
        """Renames a file or directory."""
        m = self._message({"overwrite": overwrite, "user": user, **_op()})
        _wire.text_field(m, "from", source)
        _wire.text_field(m, "to", to)
        await self._rpc.call("FileService/Move", m)

    async def remove(self, path: Path, *, recursive: bool = False, user: str = "") -> None:
        """Deletes a file or directory."""
        await self._call("Remove", {"recursive": recursive, "user": user, **_op()}, path=path)

    async def link(
        self, target: Path, path: Path, *, symbolic: bool = False, user: str = ""
    ) -> None:
        """Makes a link named ``path``, hard or symbolic."""
        m = self._message({"symbolic": symbolic, "user": user, **_op()}, path=path)
        _wire.text_field(m, "target", target)
        await self._rpc.call("FileService/Link", m)

    async def symlink(self, target: Path, path: Path, *, user: str = "") -> None:
        """Makes a symbolic link named ``path``."""
        await self.link(target, path, symbolic=True, user=user)

    async def chmod(
        self,
        path: Path,
        mode: int | None = None,
        *,
        owner: str | None = None,
        recursive: bool = False,
        user: str = "",
    ) -> None:
        """Changes mode or owner ("user" or "user:group")."""
        m: dict[str, Any] = {"recursive": recursive, "user": user, **_op()}
        if mode is not None:
            m["mode"] = mode
        if owner is not None:
            m["owner"] = owner
        await self._call("Chmod", m, path=path)

    async def watch(
        self, path: Path = ".", *, recursive: bool = False, user: str = ""
    ) -> AsyncIterator[FileChange]:
        """Gives the changes below a directory, until the iteration is closed.

        When the connection breaks the watch begins anew, and a change of kind
        "overflow" says that some may have been missed.
        """
        m = self._message({"recursive": recursive, "user": user}, path=path)
        attempts: Retry | None = None
        while True:
            stream = None
            try:
                stream = await self._rpc.stream("FileService/Watch", m)
                if attempts is not None:
                    yield FileChange("overflow", "", True)
                async for message in stream.messages():
                    attempts = None
                    yield FileChange.read(message)
                raise Lost("the watch ended", reason="unavailable", retryable=True)
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

    # -- wire

    def _target(self, what: str, path: Path, **query: str) -> str:
        raw = path if isinstance(path, bytes) else path.encode(errors="surrogateescape")
        text = f"/v1/sessions/{self._id}/{what}?path={quote_from_bytes(raw, safe='/')}"
        return text + "".join(
            f"&{k}={quote_from_bytes(v.encode(), safe='')}" for k, v in query.items() if v
        )

    def _message(self, fields: dict[str, Any], path: Path | None = None) -> dict[str, Any]:
        m = {"session_id": self._id, **{k: v for k, v in fields.items() if v or k == "mode"}}
        if path is not None:
            _wire.text_field(m, "path", path)
        return m

    async def _call(self, method: str, fields: dict[str, Any], path: Path) -> _wire.Message:
        return await self._rpc.call("FileService/" + method, self._message(fields, path=path))


_BYTES = {"Content-Type": "application/octet-stream"}


def _op() -> dict[str, str]:
    return {"op_id": new_id()}

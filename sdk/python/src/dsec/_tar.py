"""Trees as tars."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import IO

from .errors import PolicyError, UserError


def spool() -> IO[bytes]:
    """Gives a file that goes to disk when it is large."""
    return tempfile.SpooledTemporaryFile(max_size=8 << 20)


def pack(source: str | os.PathLike[str], into: IO[bytes]) -> None:
    """Writes what is in a directory as a tar."""
    if not os.path.isdir(source):
        raise UserError(
            "it is not a directory", reason="invalid_argument", object=f"path {os.fspath(source)!r}"
        )
    with tarfile.open(fileobj=into, mode="w") as tar:
        tar.add(source, arcname=".")
    into.seek(0)


def unpack(tar_file: IO[bytes], to: str | os.PathLike[str]) -> None:
    """Unpacks a tar that nobody vouches for: what would leave ``to`` is refused."""
    if not hasattr(tarfile, "data_filter"):
        raise UserError(
            "this Python cannot unpack a tar safely",
            reason="unsupported",
            object="download_dir",
            remedy="use Python 3.10.12, 3.11.4, 3.12 or newer, or stream_tar",
        )
    tar_file.seek(0)
    os.makedirs(to, exist_ok=True)
    try:
        with tarfile.open(fileobj=tar_file, mode="r:") as tar:
            tar.extractall(to, filter="data")
    except tarfile.FilterError as e:
        raise PolicyError(
            f"the box sent what would leave the directory: {e}", reason="forbidden", scope="box"
        ) from e

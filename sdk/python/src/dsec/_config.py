"""Where the server is and who calls."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from ._version import __version__
from .errors import UserError

DEFAULT_DATA_DIR = "/var/lib/dsec"


@dataclass(frozen=True)
class Config:
    """How to reach a server."""

    base: str  # scheme://host[:port][/path], without a slash at the end
    socket: str | None  # path of a unix socket
    headers: dict[str, str]
    retry_for: float
    ssl_context: ssl.SSLContext | None


def configure(
    url: str | None,
    api_key: str | None,
    project: str | None,
    retry_for: float,
    ssl_context: ssl.SSLContext | None,
) -> Config:
    """Reads arguments, else the environment: DSEC_URL, DSEC_API_KEY, DSEC_DATA_DIR."""
    raw = url or os.environ.get("DSEC_URL") or ""
    if not raw:
        raw = "unix://" + os.path.join(
            os.environ.get("DSEC_DATA_DIR") or DEFAULT_DATA_DIR, "dsec.sock"
        )
    parts = urlsplit(raw)
    socket: str | None = None
    if parts.scheme == "unix" and parts.path:
        socket, base = parts.path, "http://dsec"
    elif parts.scheme in ("http", "https") and parts.netloc:
        base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    else:
        raise UserError(
            "it names no server",
            reason="invalid_argument",
            object=f"url {raw!r}",
            remedy="write it as http://host:port, https://… or unix:///path/dsec.sock",
        )
    headers = {"User-Agent": f"dsec-python/{__version__}"}
    key = api_key or os.environ.get("DSEC_API_KEY")
    if key:
        headers["Authorization"] = f"Bearer {key}"
    if project:
        headers["Dsec-Project"] = project
    return Config(base, socket, headers, retry_for, ssl_context)

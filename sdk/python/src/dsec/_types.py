"""Sessions, files and templates as the server tells them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from . import _wire
from .errors import DSecError, UserError, from_wire

Phase = Literal["PENDING", "SCHEDULED", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED"]

#: What is done with a session whose time is up.
AtDeadline = Literal["stop", "suspend"]


def lifetime_ms(seconds: float) -> int:
    """Gives a deadline's distance as the wire has it; 0, which means none there, is no distance."""
    if seconds <= 0:
        raise UserError(
            f"a deadline {seconds:g} seconds from now cannot be",
            reason="invalid_argument",
            object="deadline",
            remedy="give a time to come, or None for no deadline",
        )
    return max(1, math.ceil(seconds * 1000))


PHASES: tuple[Phase, ...] = (
    "PENDING",
    "SCHEDULED",
    "RUNNING",
    "SUSPENDED",
    "COMPLETED",
    "FAILED",
)


@dataclass(frozen=True)
class SessionInfo:
    """A session as it was when the server told it."""

    id: str
    project: str = ""
    job: str = ""
    #: "name@version".
    template: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    #: The environment, with every default filled in; sizes are bytes.
    spec: Mapping[str, Any] = field(default_factory=dict)
    phase: Phase = "PENDING"
    desired: str = ""
    reclaim: str = ""
    #: Why it is where it is: place in the queue, refusal, end.
    reason: str = ""
    #: Why it failed.
    error: DSecError | None = None
    node: str = ""
    pooled: bool = False
    cold_reason: str = ""
    version: int = 0
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    updated: datetime | None = None
    #: Lease that owns it, or did.
    lease_id: str = ""
    #: When its time is up, whatever it does; None: never.
    deadline: datetime | None = None
    #: What is done then: "stop" or "suspend".
    at_deadline: str = ""

    @property
    def live(self) -> bool:
        """Whether it has not ended."""
        return self.phase not in ("COMPLETED", "FAILED")

    @classmethod
    def read(cls, m: Mapping[str, Any]) -> SessionInfo:
        """Reads it from the wire."""
        return cls(
            str(m.get("id", "")),
            str(m.get("project", "")),
            str(m.get("job", "")),
            str(m.get("template", "")),
            m.get("labels") or {},
            m.get("env") or {},
            m.get("spec") or {},
            m.get("phase", "PENDING"),
            str(m.get("desired", "")),
            str(m.get("reclaim", "")),
            str(m.get("reason", "")),
            from_wire(m["error"]) if m.get("error") else None,
            str(m.get("node", "")),
            bool(m.get("pooled", False)),
            str(m.get("cold_reason", "")),
            int(m.get("version", 0)),
            _wire.time_field(m, "created"),
            _wire.time_field(m, "started"),
            _wire.time_field(m, "ended"),
            _wire.time_field(m, "updated"),
            str(m.get("lease_id", "")),
            _wire.time_field(m, "deadline"),
            str(m.get("at_deadline", "")),
        )


@dataclass(frozen=True)
class Inspection:
    """A session with its box's live figures."""

    info: SessionInfo
    #: As message ``Box`` of the wire: state, limits, usage; empty when it has none.
    box: Mapping[str, Any]


FileType = Literal["file", "dir", "symlink", "fifo", "socket", "device", ""]


@dataclass(frozen=True)
class FileInfo:
    """A file of a box. Names that are not UTF-8 hold surrogates, as of ``os.fsdecode``."""

    path: str
    name: str = ""
    type: FileType = ""
    size: int = 0
    #: Permission, set-id and sticky bits.
    mode: int = 0
    uid: int = 0
    gid: int = 0
    user: str = ""
    group: str = ""
    modified: datetime | None = None
    #: What a symbolic link points to.
    target: str = ""
    links: int = 0

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "dir"

    @classmethod
    def read(cls, m: Mapping[str, Any]) -> FileInfo:
        """Reads it from the wire."""
        kind = str(m.get("type", "")).removeprefix("FILE_TYPE_").lower()
        return cls(
            _wire.field_text(m, "path"),
            _wire.field_text(m, "name"),
            kind,  # type: ignore[arg-type]
            int(m.get("size", 0)),
            int(m.get("mode", 0)),
            int(m.get("uid", 0)),
            int(m.get("gid", 0)),
            str(m.get("user", "")),
            str(m.get("group", "")),
            _wire.time_field(m, "modified"),
            _wire.field_text(m, "target"),
            int(m.get("links", 0)),
        )


@dataclass(frozen=True)
class FileChange:
    """A change below a watched directory."""

    #: "create", "write", "remove", "rename", "chmod" or "overflow".
    kind: str
    #: Relative to the directory.
    path: str
    #: Changes were lost: list again.
    overflow: bool = False

    @classmethod
    def read(cls, m: Mapping[str, Any]) -> FileChange:
        """Reads it from the wire."""
        return cls(
            str(m.get("kind", "")), _wire.field_text(m, "path"), bool(m.get("overflow", False))
        )


@dataclass(frozen=True)
class Template:
    """One version of an environment that sessions start from."""

    name: str
    version: str = ""
    digest: str = ""
    created: datetime | None = None
    source: str = ""
    size: int = 0
    env: tuple[str, ...] = ()
    cwd: str = ""
    user: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    #: Whether the bare name means this version.
    newest: bool = False

    @property
    def ref(self) -> str:
        """The name of this version: "name@version"."""
        return f"{self.name}@{self.version}"

    @classmethod
    def read(cls, m: Mapping[str, Any]) -> Template:
        """Reads it from the wire."""
        return cls(
            str(m.get("name", "")),
            str(m.get("version", "")),
            str(m.get("digest", "")),
            _wire.time_field(m, "created"),
            str(m.get("source", "")),
            int(m.get("size", 0)),
            tuple(m.get("env") or ()),
            str(m.get("cwd", "")),
            str(m.get("user", "")),
            m.get("spec") or {},
            bool(m.get("newest", False)),
        )

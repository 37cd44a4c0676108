"""What the boxes of a sample are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

#: An evaluation's samples may take long; the session's own clock is for those whose owner
#: forgot them, and the lease sees to that.
_DAY = 24 * 3600


class DSecSandboxConfig(BaseModel, frozen=True):
    """Environment of a box: ``dsec.yaml`` has the same fields.

    ``sandboxes`` gives a sample several boxes; what one of them does not say is as said
    above it. ``default`` is the one that ``sandbox()`` means, else the first.
    """

    model_config = ConfigDict(extra="forbid")

    #: "name" or "name@version".
    template: str = ""
    #: Overrides of the template's environment, with the names of spec files.
    spec: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, str] = Field(default_factory=dict)
    #: Where commands run and relative paths begin.
    working_dir: str = "/workspace"
    #: Who runs commands and owns files; empty: the session's user.
    user: str = ""
    sandboxes: dict[str, DSecSandboxConfig] = Field(default_factory=dict)

    @classmethod
    def of(cls, config: BaseModel | str | None) -> DSecSandboxConfig:
        """Gives what a task says: nothing, a file, or a configuration."""
        if config is None:
            return cls()
        if isinstance(config, DSecSandboxConfig):
            return config
        if isinstance(config, str):
            return cls.model_validate(yaml.safe_load(Path(config).read_text()) or {})
        return cls.model_validate(config.model_dump())

    def __hash__(self) -> int:
        # inspect-ai keeps what it has begun by configuration.
        return hash(self.model_dump_json())

    def named(self) -> dict[str, DSecSandboxConfig]:
        """Gives the boxes by name, the default one first."""
        if not self.sandboxes:
            return {"default": self}
        outer = self.model_dump(exclude={"sandboxes"})
        boxes = {
            name: DSecSandboxConfig.model_validate(outer | box.model_dump(exclude_unset=True))
            for name, box in self.sandboxes.items()
        }
        first = "default" if "default" in boxes else next(iter(boxes))
        return {first: boxes.pop(first), **boxes}

    def sandbox_spec(self) -> dict[str, Any]:
        """Gives the session's spec."""
        session = {"max_runtime_seconds": _DAY} | dict(self.spec.get("session") or {})
        return self.spec | {"session": session}

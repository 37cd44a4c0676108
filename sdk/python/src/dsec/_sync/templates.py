# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""The environments that sessions start from."""

from __future__ import annotations

from .._types import Template
from .rpc import Rpc

_Templates = list[Template]


class Templates:
    """The server's templates. Operators make them with ``dsec template``.

    >>> any(t.name == "base" for t in client.templates.list())
    True
    """

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    def list(self) -> _Templates:
        """Lists every version of every template."""
        answer = self._rpc.call("TemplateService/ListTemplates", {})
        return [Template.read(m) for m in answer.get("templates") or ()]

    def get(self, template: str) -> Template:
        """Gives one: "name" (its newest version) or "name@version"."""
        answer = self._rpc.call("TemplateService/GetTemplate", {"template": template})
        return Template.read(answer.get("template") or {})

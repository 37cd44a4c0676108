"""The environments that sessions start from."""

from __future__ import annotations

from .._types import Template
from .rpc import AsyncRpc

_Templates = list[Template]


class AsyncTemplates:
    """The server's templates. Operators make them with ``dsec template``.

    >>> any(t.name == "base" for t in await client.templates.list())
    True
    """

    def __init__(self, rpc: AsyncRpc) -> None:
        self._rpc = rpc

    async def list(self) -> _Templates:
        """Lists every version of every template."""
        answer = await self._rpc.call("TemplateService/ListTemplates", {})
        return [Template.read(m) for m in answer.get("templates") or ()]

    async def get(self, template: str) -> Template:
        """Gives one: "name" (its newest version) or "name@version"."""
        answer = await self._rpc.call("TemplateService/GetTemplate", {"template": template})
        return Template.read(answer.get("template") or {})

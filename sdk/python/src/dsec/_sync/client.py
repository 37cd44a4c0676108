# Made of its asynchronous twin by scripts/unasync.py. Do not edit.
"""A server, as a client sees it."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, overload

from .. import _wire
from .._config import configure
from .._io import blocking
from .._outcome import Outcome
from .._retry import new_id
from .._types import AtDeadline, Phase, SessionInfo, lifetime_ms
from ..errors import DSecError, InfrastructureError, UserError, from_wire
from .group import Group
from .owner import Owner, OnOwnerLost
from .rpc import Rpc
from .select import change
from .session import Session
from .templates import Templates


class Client:
    """A client of one server, for any number of sessions and concurrent calls.

    ``url`` is ``http://host:port``, ``https://…`` or ``unix:///path/dsec.sock``. Without
    it, DSEC_URL and DSEC_API_KEY are read; without those, root uses the local socket.

    The client *owns* its sessions by a lease, which a thread of its own keeps alive. It
    is given back by :meth:`close`, when the process exits, and on SIGTERM; and when the process
    dies or stalls for ``lease_ttl`` seconds the server stops the sessions (or suspends
    them, with ``on_owner_lost="suspend"``; ``lease_id`` then takes them up again). Without
    a lease (``lease_ttl=None``) sessions live on until their own clocks end them.

    ``retry_for`` bounds how long a safe call is repeated while the server cannot be reached.

    >>> with Client() as client:
    ...     with client.create() as session:
    ...         print((session.exec("echo hello")).stdout.strip())
    hello
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        project: str | None = None,
        lease_ttl: float | None = 60.0,
        on_owner_lost: OnOwnerLost = "stop",
        lease_id: str | None = None,
        retry_for: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        config = configure(url, api_key, project, retry_for, ssl_context)
        self._rpc = Rpc(config)
        self._owner = Owner(self._rpc, lease_ttl, on_owner_lost, lease_id)
        #: The environments that sessions start from.
        self.templates = Templates(self._rpc)

    @overload
    def create(
        self,
        template: str = "",
        *,
        count: None = None,
        spec: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        job: str = "",
        code: bytes | None = None,
        code_dir: str = "",
        priority: str = "",
        no_pool: bool = False,
        wait: bool = True,
        owned: bool = True,
        lifetime: float | None = None,
        at_deadline: AtDeadline | None = None,
        idempotency_key: str | None = None,
    ) -> Session: ...

    @overload
    def create(
        self,
        template: str = "",
        *,
        count: int,
        spec: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        job: str = "",
        code: bytes | None = None,
        code_dir: str = "",
        priority: str = "",
        no_pool: bool = False,
        wait: bool = True,
        owned: bool = True,
        lifetime: float | None = None,
        at_deadline: AtDeadline | None = None,
        idempotency_key: str | None = None,
    ) -> Group: ...

    def create(
        self,
        template: str = "",
        *,
        count: int | None = None,
        spec: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        job: str = "",
        code: bytes | None = None,
        code_dir: str = "",
        priority: str = "",
        no_pool: bool = False,
        wait: bool = True,
        owned: bool = True,
        lifetime: float | None = None,
        at_deadline: AtDeadline | None = None,
        idempotency_key: str | None = None,
    ) -> Session | Group:
        """Makes a session, or with ``count`` a group of them, and answers when they are RUNNING.

        ``template`` is "name" or "name@version" ("base" unless said). ``spec`` overrides its
        environment, with the names of spec files: ``{"mem_limit": "512Mi", "cpu_limit": 2}``.
        ``env`` can be seen by whoever may inspect the session; ``secrets`` reach its processes and nothing
        else. ``code`` is a tar that is unpacked before it runs. ``wait=False`` answers when it is
        queued or placed. ``owned=False`` leaves it out of the client's lease.
        ``lifetime`` seconds after it began to run it is stopped whatever it does, or suspended with
        ``at_deadline="suspend"``; :meth:`Session.set_deadline` and :meth:`Session.extend` move that.

        One session that fails is raised. Of a group, the failures are kept with it, so that one
        spoils no other, and the first is raised when all failed; whoever needs all of them says so
        with :meth:`Group.check`. The same ``idempotency_key`` gives the same sessions for 24 hours; the
        client chooses one itself, so that a lost connection makes nothing twice, and a
        create that is cancelled leaves nothing.

        >>> with client.create(env={"NAME": "box"}, labels={"run": "7"}) as session:
        ...     print((session.exec("echo $NAME")).stdout.strip())
        box
        >>> with client.create(count=2) as group:
        ...     print(len(group.check()))  # all of them, or the first failure
        2
        """
        new: dict[str, Any] = {
            "template": template,
            "spec_yaml": json.dumps({"sandbox_spec": dict(spec)}) if spec else "",
            "env": dict(env or {}),
            "secrets": dict(secrets or {}),
            "labels": dict(labels or {}),
            "job": job,
            "code": code,
            "code_dir": code_dir,
            "priority": priority,
            "no_pool": no_pool,
            "no_wait": not wait,
            "lifetime_ms": 0 if lifetime is None else lifetime_ms(lifetime),
            "at_deadline": at_deadline,
        }
        new = {k: v for k, v in new.items() if v}
        if count is None:
            return self._create_one(new, owned, idempotency_key)
        return self._create_many(new, count, owned, idempotency_key)

    def _create_one(
        self, new: dict[str, Any], owned: bool, key: str | None
    ) -> Session:
        return (self._create_many(new, 1, owned, key)).created[0].unwrap()

    def _create_many(
        self, new: dict[str, Any], count: int, owned: bool, key: str | None
    ) -> Group:
        if count < 1:
            raise UserError(
                f"{count} sessions cannot be made",
                reason="invalid_argument",
                object="count",
                remedy="ask for 1 or more",
            )
        if owned and (lease := self._owner.lease()):
            new["lease_id"] = lease
        new["count"] = count
        request = {"idempotency_key": key or new_id(), "session": new}
        made: dict[int, Outcome[Session]] = {}
        try:
            self._rpc.retry(lambda: self._receive(request, count, made), True)
        except blocking.Abandoned:
            if key is None:  # nobody else can ask for them
                blocking.finally_do(lambda: self._revoke(request))
            raise
        except DSecError as e:
            if not made:
                raise
            for at in range(count):
                made.setdefault(at, Outcome(at, "", error=e))
        for at in range(count):
            if at not in made:
                lost = InfrastructureError("the server did not answer this item")
                made[at] = Outcome(at, "", error=lost)
        group = Group(self._rpc, [made[at] for at in range(count)])
        if not len(group):
            group.check()
        return group

    def _receive(
        self, request: dict[str, Any], count: int, made: dict[int, Outcome[Session]]
    ) -> None:
        stream = self._rpc.stream("SessionService/CreateStream", request)
        try:
            for item in stream.messages():
                at = int(item.get("index", 0))
                if at in made or not 0 <= at < count:
                    continue
                result = item.get("result") or {}
                id = str(result.get("id", ""))
                error = from_wire(result["error"]) if result.get("error") else None
                info = SessionInfo.read(result["session"]) if result.get("session") else None
                session = Session(self._rpc, id, info) if id else None
                made[at] = Outcome(at, id, session, error)
                if at % 64 == 63:
                    blocking.sleep(0)  # others come first
        finally:
            stream.close()

    def _revoke(self, request: dict[str, Any]) -> None:
        change(
            self._rpc, "Stop", {"idempotency_key": request["idempotency_key"]}, {}
        )

    def session(self, id: str) -> Session:
        """Gives a handle on a session by its id, without asking the server."""
        return Session(self._rpc, id)

    def list(
        self,
        *,
        phases: Sequence[Phase] = (),
        job: str = "",
        labels: Mapping[str, str] | None = None,
        lease_id: str = "",
        newest_first: bool = False,
    ) -> Iterator[SessionInfo]:
        """Gives the project's sessions, page by page as they are consumed.

        >>> with client.create(job="eval-7") as session:
        ...     print([s.id == session.id for s in client.list(job="eval-7", phases=["RUNNING"])])
        [True]
        """
        m: dict[str, Any] = {
            "phases": list(phases),
            "job": job,
            "labels": dict(labels or {}),
            "lease_id": lease_id,
            "newest_first": newest_first,
            "page_size": 500,
        }
        m = {k: v for k, v in m.items() if v}
        while True:
            answer = self._rpc.call("SessionService/List", m)
            for s in answer.get("sessions") or ():
                yield SessionInfo.read(s)
            m["page_token"] = answer.get("next_page_token") or ""
            if not m["page_token"]:
                return

    def stop(self, *, reason: str = "", **selector: Any) -> _Outcomes:
        """Ends the sessions that one of ``ids``, ``job``, ``labels``, ``lease_id``,
        ``idempotency_key`` and ``all`` names."""
        return change(self._rpc, "Stop", selector, {"reason": reason} if reason else {})

    def suspend(self, **selector: Any) -> _Outcomes:
        """Freezes the processes of the sessions that a selector names, as in :meth:`stop`."""
        return change(self._rpc, "Suspend", selector, {})

    def resume(self, **selector: Any) -> _Outcomes:
        """Thaws the processes of the sessions that a selector names, as in :meth:`stop`."""
        return change(self._rpc, "Resume", selector, {})

    @property
    def lease_id(self) -> str:
        """The lease that owns the client's sessions; empty before the first create."""
        keeper = self._owner.keeper
        return keeper.lease_id if keeper is not None and not keeper.foreign else ""

    @property
    def lease_lost(self) -> DSecError | None:
        """Why the server took the client's sessions away, if it did."""
        keeper = self._owner.keeper
        return keeper.lost if keeper is not None else None

    def release(self, *, keep_sessions: bool = False) -> None:
        """Gives the lease back now: the client's sessions are stopped, or live on without an owner."""
        self._owner.release(keep_sessions)

    def health(self) -> Mapping[str, Any]:
        """Gives the server's health: whether it takes work, and its version."""
        return self._rpc.call("NodeService/GetHealth", {})

    def close(self) -> None:
        """Releases the lease, which stops the client's sessions, and closes the connections."""
        try:
            self._owner.release(False)
        finally:
            self._rpc.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except DSecError:
            if error is None:
                raise


_Outcomes = list[Outcome[SessionInfo]]

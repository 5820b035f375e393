"""Leases as an API server keeps them: the resourceVersion decides who writes first. Faults when asked for."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web
from support.fake_api import hang_up, refusal
from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import ConnectionLost, Refused

Lease = dict[str, Any]


class LeaseStore:
    """One namespace's leases."""

    def __init__(self) -> None:
        self.leases: dict[str, Lease] = {}
        self.version = 0
        self.writes = 0

    @property
    def holder(self) -> str:
        """Of the only lease."""
        (lease,) = self.leases.values()
        return str(lease["spec"]["holderIdentity"])

    def wipe(self, spec: Lease | None) -> None:
        """Somebody replaces the only lease, if it is there, or deletes it: None."""
        for name, there in list(self.leases.items()):
            if spec is None:
                del self.leases[name]
            else:
                self.version += 1
                self.leases[name] = {
                    "metadata": {**there["metadata"], "resourceVersion": str(self.version)},
                    "spec": spec,
                }

    def handle(self, method: str, name: str, body: Lease | None) -> tuple[int, Lease]:
        """Status and answer."""
        there = self.leases.get(name)
        if method == "GET":
            return (200, there) if there is not None else (404, {"message": "not found"})
        assert body is not None
        if method == "PATCH":  # server-side apply of an empty spec
            assert body["spec"] == {}
            if there is not None:
                return 200, there
        elif there is None:
            return 404, {"message": "not found"}
        elif body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            return 409, {"message": "the object has been modified"}
        self.version += 1
        self.writes += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        self.leases[name] = {**body, "metadata": metadata}
        return 200, self.leases[name]


class DirectLeaseClient:
    """What an elector asks of its connection, without a socket.

    Args:
        fault: asked before each request: "" or "lost", nothing was done, or "unanswered", it was carried out.

    Attributes:
        nonsense: what the next requests are answered with; nothing is done.
    """

    def __init__(self, store: LeaseStore, fault: Callable[[], str] = lambda: "") -> None:
        self._store, self._fault, self.outages, self.server = store, fault, Outages(), ""
        self.nonsense: list[bytes] = []

    async def request(self, method: str, path: str, *, body: bytes | None = None, **_: Any) -> bytes:
        """As Connection.request."""
        if self.nonsense:
            return self.nonsense.pop(0)
        fault = self._fault()
        if fault == "lost":
            raise ConnectionLost("lost")
        status, answer = self._store.handle(method, path.rpartition("/")[2], None if body is None else json.loads(body))
        if fault == "unanswered":
            raise ConnectionLost("unanswered")
        if status >= 400:
            raise Refused(status, answer["message"])
        return json.dumps(answer).encode()


class LeaseServer:
    """The same over HTTP.

    Attributes:
        script: what the next requests are answered with: a status that refuses them, or "unanswered".
    """

    def __init__(self) -> None:
        self.store = LeaseStore()
        self.script: list[int | str] = []
        self.app = web.Application()
        path = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.app.router.add_route("*", path + "/{name}", self._serve)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        fault = self.script.pop(0) if self.script else ""
        if isinstance(fault, int):
            return refusal(fault, "told to refuse")
        body = json.loads(await request.read() or b"null")
        status, answer = self.store.handle(request.method, request.match_info.get("name", ""), body)
        if fault:
            return await hang_up(request)
        return web.json_response(answer, status=status)

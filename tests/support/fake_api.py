"""Small API servers that misbehave on command, for what a real one cannot be made to do in time.

They speak HTTP over a socket, and the code under test reaches them through its own connection.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from thalweg_operator.api.client import ApiClient, connect


@asynccontextmanager
async def serving(app: web.Application, folder: Path, connections: int = 16) -> AsyncIterator[ApiClient]:
    """A connection of the operator's to a server of this application."""
    async with listening(app) as port, connected(port, folder, connections) as connection:
        yield connection


@asynccontextmanager
async def listening(app: web.Application) -> AsyncIterator[int]:
    """A server of this application; its port."""
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(port: int, folder: Path, connections: int = 16) -> AsyncIterator[ApiClient]:
    """A connection of the operator's to a port of this machine."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    async with connect(path, connections) as connection:
        yield connection


class WatchServer:
    """Lists and watches one kind at /things, as an API server does, with faults when asked for."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        #: Answers that the next lists and watches give instead of their own.
        self.list_faults: list[web.Response] = []
        self.watch_faults: list[web.Response] = []
        #: Called with the number of the list and of the page, before each page.
        self.before_page: Callable[[int], None] = lambda _page: None
        self._oldest = 0
        self._history: list[tuple[int, bytes]] = []
        self._open: set[web.StreamResponse] = set()
        self._transports: set[asyncio.Transport] = set()
        self._changed = asyncio.Condition()
        self.app = web.Application()
        self.app.router.add_get("/things", self._serve)

    def thing(self, name: str, value: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": str(self.version)}, "value": value}

    async def put(self, name: str, value: Any) -> None:
        """Creates or changes an object."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = self.thing(name, value)
        await self.send_event(kind, self.objects[name])

    async def remove(self, name: str) -> None:
        """Deletes an object."""
        self.version += 1
        gone = self.objects.pop(name)
        gone["metadata"]["resourceVersion"] = str(self.version)
        await self.send_event("DELETED", gone)

    async def bookmark(self) -> None:
        """The version has moved on, for other kinds' sake."""
        self.version += 5
        await self.send_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    async def send_event(self, kind: str, thing: Any) -> None:
        """An event."""
        await self.raw(json.dumps({"type": kind, "object": thing}).encode() + b"\n")

    async def raw(self, line: bytes) -> None:
        """Bytes in place of an event."""
        async with self._changed:
            self._history.append((self.version, line))
            self._changed.notify_all()

    async def expire_history(self) -> None:
        """Compacts the history: who comes with an older version must list again."""
        self._oldest = self.version
        self._history.clear()

    async def close_watches(self, half_a_line: bytes = b"") -> None:
        """Drops all watches, in the middle of a line if one is given."""
        for response in list(self._open):
            if half_a_line:
                await response.write(half_a_line)
        await asyncio.sleep(0)
        for transport in list(self._transports):
            transport.close()

    async def watched(self, times: int = 1) -> None:
        """Returns once so many watches were begun and one is open."""
        while len(self.watches) < times or not self._open:  # noqa: ASYNC110 - nobody else is to care who waits
            await asyncio.sleep(0.01)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        self.lists.append(dict(request.query))
        if self.list_faults:
            return self.list_faults.pop(0)
        start = int(request.query.get("continue", "0"))
        self.before_page(start)
        limit = int(request.query["limit"])
        names = sorted(self.objects)
        more = str(start + limit) if start + limit < len(names) else None
        meta = {"resourceVersion": str(self.version), **({"continue": more} if more else {})}
        items = [self.objects[name] for name in names[start : start + limit]]
        return web.json_response({"metadata": meta, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches.append(dict(request.query))
        if self.watch_faults:
            return self.watch_faults.pop(0)
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if since < self._oldest:
            problem = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            await response.write(json.dumps({"type": "ERROR", "object": problem}).encode() + b"\n")
            return response
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open.add(response)
        self._transports.add(transport)
        try:
            place = next((at for at, (version, _) in enumerate(self._history) if version > since), len(self._history))
            while not transport.is_closing():
                async with self._changed:
                    while len(self._history) <= place:
                        await asyncio.wait_for(self._changed.wait(), 20)
                    new, place = self._history[place:], len(self._history)
                for _, line in new:
                    await response.write(line)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._open.discard(response)
            self._transports.discard(transport)
        return response


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BindingServer:
    """Pods that can be bound and read; each POST may be given an answer of its own."""

    def __init__(self) -> None:
        #: uid and node of each pod that exists, by key.
        self.pods: dict[str, tuple[str, str]] = {}
        self.bound: list[tuple[str, str]] = []
        self.posts = 0
        self.script: list[Answer] = []
        self.get_script: list[Answer] = []
        self.app = web.Application()
        path = "/api/v1/namespaces/{namespace}/pods/{name}"
        self.app.router.add_post(path + "/binding", self._post)
        self.app.router.add_get(path, self._get)

    async def bind(self, request: web.Request) -> web.StreamResponse:
        """What an API server does."""
        key, body = _key(request), await request.json()
        if key not in self.pods:
            return refusal(404, f'pods "{key}" not found')
        uid, node = self.pods[key]
        if body["metadata"]["uid"] != uid:
            return refusal(409, "Precondition failed: UID in precondition does not match")
        if node:
            return refusal(409, f"pod {key} is already assigned to node {node!r}")
        self.pods[key] = (uid, body["target"]["name"])
        self.bound.append((key, body["target"]["name"]))
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def bind_and_hang_up(self, request: web.Request) -> web.StreamResponse:
        """Binds, and the answer is lost."""
        await self.bind(request)
        return await hang_up(request)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.posts += 1
        return await (self.script.pop(0) if self.script else self.bind)(request)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        if self.get_script:
            return await self.get_script.pop(0)(request)
        if _key(request) not in self.pods:
            return refusal(404, "not found")
        uid, node = self.pods[_key(request)]
        return web.json_response({"metadata": {"uid": uid}, "spec": {"nodeName": node} if node else {}})


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Closes the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def answering(status: int, message: str = "no", **headers: str) -> Answer:
    """Always this refusal."""

    async def answer(_request: web.Request) -> web.StreamResponse:
        return refusal(status, message, **headers)

    return answer


def refusal(status: int, message: str, **headers: str) -> web.Response:
    """A Status as an API server writes it."""
    body = {"kind": "Status", "status": "Failure", "code": status, "message": message}
    return web.json_response(
        body, status=status, headers={key.replace("_", "-"): value for key, value in headers.items()}
    )


def _key(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"

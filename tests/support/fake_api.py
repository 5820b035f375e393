"""Small API servers that misbehave on command, for what a real one cannot be made to do in time.

They speak HTTP over a socket, and the code under test reaches them through its own connection. ``ScriptedApi`` alone
stands in for that connection: what takes minutes passes in virtual time there.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from thalweg_operator.api.client import ApiClient, connect
from thalweg_operator.api.outages import Outages
from thalweg_operator.errors import ConnectionLost, Refused


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


class Objects:
    """Objects of one kind, with their versions and the history that watches show.

    Attributes:
        objects: the truth, by name.
    """

    def __init__(self, version: int = 1) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = version
        self._oldest = 0
        self._history: list[tuple[int, bytes]] = []
        self._changed = asyncio.Event()

    def thing(self, name: str, value: Any) -> dict[str, Any]:
        """An object of the present version."""
        return thing(name, value, self.version)

    def put(self, name: str, value: Any) -> None:
        """Creates or changes an object."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.objects[name] = self.thing(name, value)
        self.send_event(kind, self.objects[name])

    def remove(self, name: str) -> None:
        """Deletes an object."""
        self.version += 1
        self.send_event("DELETED", self.thing(name, self.objects.pop(name)["value"]))

    def bookmark(self) -> None:
        """The version has moved on, for other kinds' sake."""
        self.version += 5
        self.send_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def send_event(self, kind: str, of: Any) -> None:
        """An event."""
        self.raw(event(kind, of))

    def raw(self, line: bytes) -> None:
        """Bytes in place of an event."""
        self._history.append((self.version, line))
        self._changed.set()

    def expire_history(self) -> None:
        """Compacts the history: who comes with an older version must list again."""
        self._oldest = self.version
        self._history.clear()

    def restore(self) -> None:
        """Goes on as after etcd was restored: every version that was given out before has expired."""
        self.version += 1000
        self.expire_history()
        self._changed.set()

    def page(self, start: int = 0, limit: int | None = None) -> bytes:
        """A list, or a part of it."""
        names = sorted(self.objects)
        end = len(names) if limit is None else start + limit
        meta = {"resourceVersion": str(self.version), **({"continue": str(end)} if end < len(names) else {})}
        return json.dumps({"metadata": meta, "items": [self.objects[name] for name in names[start:end]]}).encode()

    async def lines(self, since: int, silence: float) -> AsyncIterator[bytes]:
        """What a watch from this version on shows.

        Raises:
            TimeoutError: nothing came for so many seconds.
        """
        shown = next((at for at, (version, _) in enumerate(self._history) if version > since), len(self._history))
        while since >= self._oldest:
            new = self._history[shown:]
            shown += len(new)
            if new:
                yield b"".join(line for _, line in new)
                continue
            self._changed.clear()
            async with asyncio.timeout(silence):
                await self._changed.wait()
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        yield event("ERROR", status)


def thing(name: str, value: Any, version: int) -> dict[str, Any]:
    """An object."""
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def event(kind: str, of: Any) -> bytes:
    """A line of a watch."""
    return json.dumps({"type": kind, "object": of}).encode() + b"\n"


class WatchServer(Objects):
    """Lists and watches one kind at /things, as an API server does, with faults when asked for.

    Attributes:
        lists, watches: the queries of all requests so far.
        list_faults, watch_faults: answers that the next lists and watches give instead of their own.
        before_page: called with the number of its first object, before each page.
    """

    def __init__(self) -> None:
        super().__init__(version=10)
        self.lists: list[dict[str, str]] = []
        self.watches: list[dict[str, str]] = []
        self.list_faults: list[web.Response] = []
        self.watch_faults: list[web.Response] = []
        self.before_page: Callable[[int], None] = lambda _start: None
        self._open: set[web.StreamResponse] = set()
        self._transports: set[asyncio.Transport] = set()
        self.app = web.Application()
        self.app.router.add_get("/things", self._serve)

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
        return web.Response(body=self.page(start, int(request.query["limit"])), content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches.append(dict(request.query))
        if self.watch_faults:
            return self.watch_faults.pop(0)
        response = web.StreamResponse()
        await response.prepare(request)
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open.add(response)
        self._transports.add(transport)
        try:
            async for chunk in self.lines(int(request.query["resourceVersion"]), silence=20):
                await response.write(chunk)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            self._open.discard(response)
            self._transports.discard(transport)
        return response


#: Bytes, or an error to raise, or None for the true answer.
Scripted = bytes | Exception | None


class ScriptedApi(Objects):
    """Stands in for a Connection, without sockets: well, or with whatever answers a test makes up.

    Attributes:
        listing, watching: called for each request, with its number.
        seconds: how long a watch with made up bytes stays open after them.
        asked: when each request came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outages = Outages()
        self.listing: Callable[[int], Scripted] = lambda _number: None
        self.watching: Callable[[int], Scripted] = lambda _number: None
        self.seconds = 0.0
        self.asked: list[float] = []

    def busiest(self, seconds: float = 10.0) -> int:
        """Most requests in any window of so many seconds."""
        return max((sum(at <= other < at + seconds for other in self.asked) for at in self.asked), default=0)

    async def request(self, method: str, path: str, **_options: Any) -> bytes:
        """See Connection."""
        answer = await self._answer(self.listing)
        return self.page() if answer is None else answer

    @asynccontextmanager
    async def stream(self, path: str, params: dict[str, str], silence: float) -> AsyncIterator["_Content"]:
        """See Connection."""
        answer = await self._answer(self.watching)
        yield _Content(self._live(params, silence) if answer is None else self._made_up(answer))

    async def _answer(self, script: Callable[[int], Scripted]) -> bytes | None:
        self.asked.append(asyncio.get_running_loop().time())
        answer = script(len(self.asked))
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _made_up(self, answer: bytes) -> AsyncIterator[bytes]:
        if answer:
            yield answer
        await asyncio.sleep(self.seconds)

    async def _live(self, params: dict[str, str], silence: float) -> AsyncIterator[bytes]:
        version = params["resourceVersion"]
        if not version.isdecimal() or len(version) > 9:
            raise Refused(400, "invalid resource version")
        if int(version) > self.version:
            raise Refused(504, "Too large resource version")
        end = asyncio.get_running_loop().time() + int(params["timeoutSeconds"])
        try:
            async for chunk in self.lines(int(version), silence):
                yield chunk
                if asyncio.get_running_loop().time() >= end:
                    return
        except TimeoutError:
            raise ConnectionLost("nothing came") from None


class _Content:
    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks

    def iter_any(self) -> AsyncIterator[bytes]:
        return self._chunks


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

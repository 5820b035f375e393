"""A proxy between the operator and the API server: it counts what passes, cuts the line or disturbs it when told to."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import yaml
from aiohttp import web
from support.fake_api import hang_up
from thalweg_controlplane import ControlPlane
from thalweg_controlplane.client.api import Api

Forward: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Disturbance: TypeAlias = Callable[[web.Request, Forward], Awaitable[web.StreamResponse]]
"""Answers a request, by passing it on or otherwise. A ConnectionError ends the connection without an answer."""


@dataclass(slots=True)
class ProxiedRequest:
    """A request that reached the API server.

    Attributes:
        when: seconds of time.monotonic() at which it was passed on.
        status: of the answer; 0 while there is none.
    """

    when: float
    method: str
    path: str
    status: int = 0
    body: bytes = b""

    @property
    def is_write(self) -> bool:
        """Whether it needs the lease."""
        return self.method != "GET" and "/leases" not in self.path


class ApiProxy:
    """See the module.

    Attributes:
        kubeconfig: as the plane's, by way of the proxy.
        requests: all requests that reached the API server, in order.
        cut: while it is set nothing passes and nothing is answered; what is sent meanwhile never arrives.
        lagging: paths whose watches bring nothing for now.
        before, after: called with each request before it is passed on, and when the API server has answered it. Where
            they return False, neither the request nor the answer goes further, and the connection is closed.
        loses: the end of a path: the answer to the next such request is lost, once.
        date: the answers' Date header, in place of the true time; "": the true time.
        disturbance: takes each request in place of `forward`; None: all pass.
    """

    def __init__(self, api: Api, session: aiohttp.ClientSession, kubeconfig: Path) -> None:
        self._api, self._session = api, session
        self.kubeconfig = kubeconfig
        self.requests: list[ProxiedRequest] = []
        self.cut = False
        self.lagging: set[str] = set()
        self.before: Callable[[ProxiedRequest], bool] = lambda _request: True
        self.after: Callable[[ProxiedRequest], bool] = lambda _request: True
        self.loses = self.date = ""
        self.disturbance: Disturbance | None = None
        self._watches: set[asyncio.Transport] = set()

    @property
    def writes(self) -> list[ProxiedRequest]:
        """Those that need the lease."""
        return [each for each in self.requests if each.is_write]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        disturbance = self.disturbance
        try:
            await request.read()
            if self.cut:
                await self._while_cut()
                raise ConnectionResetError
            return await (self.forward(request) if disturbance is None else disturbance(request, self.forward))
        except (ConnectionError, aiohttp.ClientError):  # the client has left, or the API server is away
            return await hang_up(request)

    def end_watches(self) -> None:
        """Ends all watches that are open, wherever they are."""
        for transport in self._watches:
            transport.abort()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Passes a request on, and the API server's answer back."""
        body = await request.read()
        record = ProxiedRequest(time.monotonic(), request.method, request.path_qs, body=body)
        if not self.before(record):
            raise ConnectionResetError
        self.requests.append(record)
        transport = request.transport
        if not is_watch(request) or transport is None:
            return await self._relay(request, body, record)
        self._watches.add(transport)
        try:
            return await self._relay(request, body, record)
        finally:
            self._watches.discard(transport)

    async def _relay(self, request: web.Request, body: bytes, record: ProxiedRequest) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        async with self._session.request(
            request.method, self._api.url + request.path_qs, data=body or None, headers=headers
        ) as answer:
            record.status = answer.status
            if not self.after(record):
                raise ConnectionResetError
            if self.loses and request.path.endswith(self.loses):
                self.loses = ""
                raise ConnectionResetError
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            if self.date:
                response.headers["Date"] = self.date
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self._while_cut()
                while "watch" in request.query and request.path in self.lagging:  # noqa: ASYNC110 - tests set it
                    await asyncio.sleep(0.02)
                await response.write(chunk)
            await response.write_eof()
        return response

    async def _while_cut(self) -> None:
        while self.cut:  # noqa: ASYNC110 - tests set it
            await asyncio.sleep(0.02)


def is_watch(request: web.Request) -> bool:
    """Whether it asks for a stream of changes."""
    return "watch" in request.query


@asynccontextmanager
async def proxied(
    plane: ControlPlane, api: Api, folder: Path, user: dict[str, Any] | None = None
) -> AsyncIterator[ApiProxy]:
    """A proxy to this plane; `user` takes the place of the kubeconfig's."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    connector = aiohttp.TCPConnector(limit=0, ssl=api._tls)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        proxy = ApiProxy(api, session, folder / "proxied-kubeconfig")
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{rest:.*}", proxy.serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        config["clusters"][0]["cluster"] = {"server": f"http://127.0.0.1:{runner.addresses[0][1]}"}
        if user is not None:
            config["users"][0]["user"] = user
        proxy.kubeconfig.write_text(json.dumps(config))
        try:
            yield proxy
        finally:
            await runner.cleanup()

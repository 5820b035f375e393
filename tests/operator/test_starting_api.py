"""An API server that starts refuses everybody: which 401 and 403 count as that of one that starts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from support.fake_api import hang_up, refusal, serving
from thalweg_operator.api.client import ApiClient, keepalive_socket
from thalweg_operator.api.fence import Fence
from thalweg_operator.errors import ConnectionLost, Refused


async def _break_off(request: web.Request) -> web.StreamResponse:
    """A watch that ends in the middle of an event."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(b'{"type": ')
    return await hang_up(request)


async def _accept(_request: web.Request) -> web.StreamResponse:
    return web.Response(body=b"{}")


async def _refuse(request: web.Request) -> web.StreamResponse:
    return refusal(int(request.query["status"]), "no")


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[ApiClient]:
    """A server that hangs up, breaks a watch off, accepts or refuses, as the path says."""
    app = web.Application()
    for path, answer in {"/lost": hang_up, "/watch": _break_off, "/good": _accept, "/refused": _refuse}.items():
        app.router.add_route("*", path, answer)
    async with serving(app, folder) as connection:
        yield connection


async def counts_as_starting(connection: ApiClient, status: int = 403) -> bool:
    """Whether a refusal is taken for that of a server that starts."""
    with pytest.raises(Refused) as caught:
        await connection.request("GET", "/refused", params={"status": str(status)})
    return caught.value.starting


@pytest.mark.parametrize("status", [401, 403])
async def test_after_a_lost_connection(tmp_path: Path, status: int) -> None:
    """Only after one, until a write is accepted: then the server knows our roles. Any account may read some things."""
    async with connected(tmp_path) as connection:
        assert not await counts_as_starting(connection, status)
        with pytest.raises(ConnectionLost):
            await connection.request("POST", "/lost")
        assert await counts_as_starting(connection, status)
        await connection.request("GET", "/good")
        assert await counts_as_starting(connection, status)
        await connection.request("POST", "/good")
        assert not await counts_as_starting(connection, status)


async def test_after_a_watch_that_broke_off(tmp_path: Path) -> None:
    """Often the only connection that a server's end is seen by."""
    async with connected(tmp_path) as connection:
        with pytest.raises(ConnectionLost):
            async with connection.stream("/watch", {}, 30.0) as reader:
                await reader.read()
        assert await counts_as_starting(connection)


class FenceThatCloses(Fence):
    """Closed from the moment when a write has asked it."""

    def seconds(self) -> float:
        """See Fence."""
        left = super().seconds()
        self.close()
        return left


async def test_after_a_write_that_our_fence_held_back(tmp_path: Path) -> None:
    """It says nothing about the server: a role that is missing is said at once."""
    fence = FenceThatCloses()
    connector = aiohttp.TCPConnector(socket_factory=partial(keepalive_socket, fence=fence))
    async with connected(tmp_path) as plain, aiohttp.ClientSession(connector=connector) as writes:
        connection = ApiClient(plain.credentials, plain._session, fence, writes)
        fence.extend(fence.clock() + 60, fence.clock() + 90)
        with pytest.raises(ConnectionLost, match="not sent: this process does not hold the lease"):
            await connection.request("POST", "/good")
        assert not await counts_as_starting(connection)

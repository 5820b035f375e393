"""Redirects are not followed: what stands behind a Service must not choose what is asked with the caller's login."""

from pathlib import Path

import pytest
from aiohttp import web
from support.fake_api import serving
from thalweg_operator.errors import Refused

_PROXY = "/api/v1/namespaces/a/services/https:view:443/proxy"
_NODE = "/api/v1/nodes/n/proxy/run/kube-system/pod/container"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_path_that_a_service_chooses_is_not_asked(tmp_path: Path, method: str, status: int) -> None:
    """The API server's proxy passes on a Location that is relative, and it may lead out of the proxy's path."""
    asked: list[str] = []

    async def run(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        return web.Response(body=b"{}")

    async def redirect(request: web.Request) -> web.StreamResponse:
        up = "../" * (request.path.count("/") - 1)
        return web.Response(status=status, headers={"Location": f"{up}{_NODE[1:]}"})

    app = web.Application()
    app.router.add_route("*", _NODE, run)
    app.router.add_route("*", f"{_PROXY}/api/v1/why", redirect)
    async with serving(app, tmp_path) as client:
        with pytest.raises(Refused, match=f"{status}: a redirect, which is not followed"):
            await client.request(method, f"{_PROXY}/api/v1/why", body=b"{}" if method == "POST" else None)
    assert asked == []

"""The EndpointSlice of the extender's Service: written only where kube-scheduler then reaches the leader alone."""

import asyncio
import json
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.fake_api import serving
from support.operator import until
from thalweg_operator.api.leadership.endpoint_slice import EndpointWriter, LeaderEndpoint

FITS: dict[str, Any] = {"ports": [{"name": "metrics"}, {"name": "extender"}], "ipFamilies": ["IPv4"]}


class Server:
    """Has the Service; ``applied`` are the slices."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.applied = spec, list[dict[str, Any]]()
        self.app = web.Application()
        self.app.router.add_get("/api/v1/namespaces/a/services/b", self._service)
        path = "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices/b-leader"
        self.app.router.add_patch(path, self._apply)

    async def _service(self, _request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"uid": "u"}, "spec": self.spec})

    async def _apply(self, request: web.Request) -> web.Response:
        self.applied.append(json.loads(await request.read()))
        return web.json_response({})


async def written(server: Server, folder: Path, address: str, ended: Callable[[list[Any]], object]) -> list[Any]:
    """The lines of the log of a writer that runs until then."""
    async with serving(server.app, folder) as connection:
        with capture_logs() as lines:
            task = asyncio.create_task(
                EndpointWriter(connection, LeaderEndpoint("a", "b", ip_address(address), 8443)).run()
            )
            try:
                await until(lambda: ended(lines), 10, lambda: f"the end; {lines}")
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    return lines


@pytest.mark.parametrize(
    ("change", "address", "problem"),
    [
        ({"selector": {"app": "thalweg"}}, "10.1.2.3", "Service a/b has spec.selector"),
        ({"ports": [{"name": "https"}]}, "10.1.2.3", 'Service a/b has no port "extender" in spec.ports'),
        ({"ports": [{}]}, "10.1.2.3", 'Service a/b has no port "extender" in spec.ports'),
        ({"ports": None}, "10.1.2.3", 'Service a/b has no port "extender" in spec.ports'),
        ({}, "fd00::3", "Service a/b has spec.ipFamilies IPv4, but the pod's address fd00::3 is IPv6"),
    ],
)
async def test_a_service_that_leads_elsewhere(
    tmp_path: Path, change: dict[str, Any], address: str, problem: str
) -> None:
    """One line names the object and the field, and nothing is written."""
    server = Server({**FITS, **change})
    lines = await written(server, tmp_path, address, lambda lines: [each for each in lines if "problem" in each])
    said = [each["problem"] for each in lines if "problem" in each]
    assert len(said) == 1
    assert problem in said[0]
    assert server.applied == []


@pytest.mark.parametrize(
    ("change", "address"),
    [
        ({}, "10.1.2.3"),
        ({"selector": {}}, "10.1.2.3"),
        ({"ipFamilies": ["IPv4", "IPv6"]}, "fd00::3"),
        ({"ipFamilies": None}, "fd00::3"),
    ],
)
async def test_a_service_that_leads_here(tmp_path: Path, change: dict[str, Any], address: str) -> None:
    """The slice has the pod's address alone."""
    server = Server({**FITS, **change})
    await written(server, tmp_path, address, lambda _lines: server.applied)
    assert server.applied[0]["endpoints"] == [{"addresses": [address], "conditions": {"ready": True}}]

"""Paths of the API are made of names: a name stays one segment, and leads nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.fake_api import serving
from thalweg_operator.api.client import api_path, pod_path


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_a_segment_stays_one_segment(segments: list[str]) -> None:
    """Whatever it holds: no slash, no query, no fragment, no step upwards."""
    if {".", ".."} & set(segments):
        with pytest.raises(ValueError, match="cannot be part of a path"):
            api_path("/api/v1", *segments)
        return
    path = api_path("/api/v1", *segments)
    assert path.count("/") == 2 + len(segments)
    assert not set(path) & set("?#% ") - {"%"}
    assert path.isascii()


@pytest.mark.parametrize(
    "name",
    [
        "../../../../../apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?a=",
        "x/eviction?",
        "v/../../../namespaces/default/pods/victim/binding?dryRun=All&x=",
    ],
)
def test_names_that_lead_elsewhere(name: str) -> None:
    """They name a pod that cannot exist, in the namespace that was meant."""
    assert pod_path("ns", name, "binding").startswith("/api/v1/namespaces/ns/pods/")
    assert pod_path("ns", name, "binding").count("/") == pod_path("ns", "p", "binding").count("/")


async def test_a_path_is_sent_as_it_is(tmp_path: Path) -> None:
    """What is quoted stays quoted on the wire: nothing is resolved on the way."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.raw_path)
        return web.json_response({})

    server = web.Application()
    server.router.add_route("*", "/{path:.*}", answer)
    async with serving(server, tmp_path) as connection:
        await connection.request("GET", pod_path("ns", "../x?y=%2e%2e"))
    assert paths == ["/api/v1/namespaces/ns/pods/..%2Fx%3Fy%3D%252e%252e"]

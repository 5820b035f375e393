"""The bind verb: for pods that filter let through, to a node that it let them through to, and to no other path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.client import api_path, connect, pod_path
from thalweg_operator.delivery.binder import Binder
from thalweg_operator.metrics import Metrics

from flowcore.model.pods import Pod, PodClass

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: a, user: {{token: SECRET}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
current-context: a
"""


@asynccontextmanager
async def binding(tmp_path: Path) -> AsyncIterator[tuple[Binder, DrivenLedger, list[str]]]:
    """A binder, what it knows, and the paths that arrive at the API server."""
    paths: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        paths.append(f"{request.method} {request.raw_path}")
        return web.json_response({})

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = tmp_path / "kubeconfig"
    config.write_text(KUBECONFIG.format(port=runner.addresses[0][1]))
    state = DrivenLedger()
    try:
        async with connect(config, 4) as connection:
            nobody: Any = None
            yield Binder(connection, state.shell, Metrics(), nobody, nobody, 1), state, paths
    finally:
        await runner.cleanup()


async def test_only_where_filter_let_it_through(tmp_path: Path) -> None:
    """The pod is known by name and uid, the node is one of those that passed, and that was lately."""
    async with binding(tmp_path) as (binder, state, paths):
        pod = Pod("ns", "p", "u", PodClass())
        state.upsert_pod(pod)
        assert "was not let through" in await binder.bind_for_scheduler("ns", "p", "u", "a")
        state.in_flight.let_through(pod, frozenset({"a", "b"}), 10.0)
        for namespace, name, uid, node in (
            ("ns", "p", "u", "c"),
            ("ns", "p", "", "a"),
            ("ns", "p", "other", "a"),
            ("ns", "q", "u", "a"),
            ("kube-system", "p", "u", "a"),
        ):
            assert await binder.bind_for_scheduler(namespace, name, uid, node)
        assert paths == []
        assert await binder.bind_for_scheduler("ns", "p", "u", "b") == ""
        assert paths == ["POST /api/v1/namespaces/ns/pods/p/binding"]
        state.in_flight.settle(11.0)
        assert await binder.bind_for_scheduler("ns", "p", "u", "b")


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        ("default", "../../../../../apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies?a="),
        ("default", "x/eviction?"),
        ("kube-system", "v/../../../namespaces/default/pods/victim/binding?dryRun=All&x="),
        ("..", ".."),
    ],
)
async def test_names_that_lead_elsewhere(tmp_path: Path, namespace: str, name: str) -> None:
    """Nothing is sent: no such pod is known."""
    async with binding(tmp_path) as (binder, _state, paths):
        assert "no pending pod" in await binder.bind_for_scheduler(namespace, name, "u", "cp-1")
        assert paths == []


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


async def test_a_path_is_sent_as_it_is(tmp_path: Path) -> None:
    """What is quoted stays quoted on the wire: nothing is resolved on the way."""
    async with binding(tmp_path) as (binder, _state, paths):
        await binder._api_client.request("GET", pod_path("ns", "../x?y=%2e%2e"))
        assert paths == ["GET /api/v1/namespaces/ns/pods/..%2Fx%3Fy%3D%252e%252e"]

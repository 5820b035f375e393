"""A real Prometheus measures nodes, the operator asks it, and pods go by what nodes use where their policy says so."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from support.cluster_scenario import ClusterScenario
from support.fake_api import listening
from support.operator import Operator, running_operator, until
from support.prometheus import running_prometheus
from support.tools import prometheus as executable

from flowcore.model.nodes import MEASURED_BANDWIDTH
from flowcore.model.resources import BANDWIDTH

__all__ = ["executable"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: What the nodes use: cores, bytes, and bytes per second.
USE = {"busy": (3.9, 2**30, 1.2e9), "idle": (0.1, 2**30, 0.0)}
QUERIES = {
    "cpu": "sum by (node) (test_cpu_cores)",
    "memory": "sum by (node) (test_memory_bytes)",
    "bandwidth": "8 * sum by (node) (test_sent_bytes_per_second)",
}


async def _exposed(_request: web.Request) -> web.Response:
    lines = [
        f'{name}{{node="{node}"}} {amounts[at]}'
        for at, name in enumerate(("test_cpu_cores", "test_memory_bytes", "test_sent_bytes_per_second"))
        for node, amounts in USE.items()
    ]
    return web.Response(text="\n".join(lines) + "\n", headers={"Content-Type": "text/plain; version=0.0.4"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(
    executable: Path, account: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Operator]:
    """One that asks a Prometheus, which scrapes what nodes are said to use."""
    folder, exporter = tmp_path_factory.mktemp("prometheus"), web.Application()
    exporter.router.add_get("/metrics", _exposed)
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(exporter))
        prometheus = await stack.enter_async_context(running_prometheus(executable, folder, f"127.0.0.1:{port}"))
        options = ["--usage-interval", "1", "--prometheus-url", prometheus.url]
        for name, query in QUERIES.items():
            options += ["--prometheus-query", f"{name}={query}"]
        yield await stack.enter_async_context(running_operator(account, folder / "operator.log", extender=options))


async def wait_measured(scene: ClusterScenario, measured: int, unmeasured: int = 0) -> None:
    """Returns when a poll found so many nodes with a sample, and so many without."""

    async def found() -> bool:
        metrics = await scene.operator.metrics()
        counts = tuple(metrics.get(f"thalweg_usage_nodes {state}") for state in ("measured", "unmeasured"))
        return counts == (measured, unmeasured)

    await until(found, 60, lambda: f"{measured} nodes to be measured")


async def wait_polled(scene: ClusterScenario) -> None:
    """Waits until a poll that began after this has ended: the next one may have begun before."""

    async def polls() -> float:
        return (await scene.operator.metrics()).get("thalweg_usage_poll_seconds_count", 0.0)

    before = await polls()

    async def polled() -> bool:
        return await polls() >= before + 2

    await until(polled, 60, lambda: "two more polls")


async def full_by_requests(scene: ClusterScenario) -> None:
    """The node that uses nothing has pods that request most of it."""
    await scene.nodes("busy", "idle", cpu="4")
    for number in range(3):
        await scene.create(f"lazy-{number}", "1", nodeName="idle")


@pytest.mark.parametrize(("utilisation", "node"), [("Measured", "idle"), ("Requested", "busy"), ("Larger", "idle")])
async def test_pods_go_by_what_nodes_use(scene: ClusterScenario, utilisation: str, node: str) -> None:
    """Measured: to the node that is idle. Requested: to the one without pods. Larger: 3.9 cores are more than 3."""
    await full_by_requests(scene)
    await scene.policy("own", selects={"podSelector": {}}, cost={"utilisation": utilisation})
    if utilisation != "Requested":
        await wait_measured(scene, 2)
    await scene.create("waits", "500m")
    assert await scene.node_of("waits") == node


async def test_the_condition_says_what_is_not_measured(scene: ClusterScenario) -> None:
    """Without metrics-server nothing is known of pods; a node that Prometheus does not know has no sample."""
    await scene.nodes("busy", "idle")
    await scene.policy("own", selects={"podSelector": {}}, cost={"utilisation": "Measured"})
    await scene.policy("other", selects={"podSelector": {"matchLabels": {"a": "b"}}})

    def condition(each: Any) -> dict[str, str]:
        found = {one["type"]: one for one in each["status"]["conditions"]}
        return found.get("UsageMeasured", {})

    said = await scene.policy_seen("own", condition=lambda each: "404" in condition(each).get("message", ""))
    assert condition(said)["status"] == "False"
    assert condition(said)["reason"] == "Unavailable"
    assert condition(said)["message"].startswith("PodMetrics cannot be read: 404: ")
    assert not condition(await scene.policy_seen("other"))
    await scene.nodes("unknown")
    await wait_measured(scene, 2, 1)
    lines = [line for line in scene.operator.log.splitlines() if "usage not measured" in line]
    assert len(lines) == 1, lines


async def test_bandwidth_takes_the_place_of_the_annotation(scene: ClusterScenario) -> None:
    """The annotations say the contrary of what Prometheus measures; the pod goes where Prometheus sees room."""
    for name, annotated in (("busy", "0"), ("idle", "9G")):
        await scene.nodes(name, extended={BANDWIDTH: "10G"})
        await scene.api.request(
            "PATCH",
            f"/api/v1/nodes/{name}",
            {"metadata": {"annotations": {MEASURED_BANDWIDTH: annotated}}},
            content_type="application/merge-patch+json",
        )
    await scene.policy("own", selects={"podSelector": {}}, cost={"model": "NetworkAware"})
    # No metric counts measured bandwidth; Prometheus reads it together with the use of cpu, which one counts.
    nobody = {"podSelector": {"matchLabels": {"a": "b"}}}
    await scene.policy("other", selects=nobody, cost={"utilisation": "Measured"})
    await wait_measured(scene, 2)
    await wait_polled(scene)
    await scene.create("stream", extended={BANDWIDTH: "500M"})
    assert await scene.node_of("stream") == "idle"

"""A real metrics-server measures what KWOK says that pods use, and the operator plans by it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.cluster_scenario import ClusterScenario
from support.metrics_server import MetricsServer, measurable_node, metrics_server, using
from support.operator import Operator, running_operator
from support.tools import metrics_server as executable
from thalweg_controlplane import Api, ControlPlane

__all__ = ["executable"]

# It is built in minutes, and scrapes every ten seconds at most.
pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"kwok": True}
BREAKS_PLANE = True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    options = ("--usage-interval", "1")
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=options) as operator:
        yield operator


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    executable: Path, plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[MetricsServer]:
    async with metrics_server(executable, tmp_path_factory.mktemp("metrics-server"), *plane) as server:
        yield server


def condition(policy: Any) -> str:
    """Status, reason and message of UsageMeasured."""
    found = {one["type"]: one for one in policy["status"]["conditions"]}.get("UsageMeasured", {})
    return f"{found.get('status')} {found.get('reason')} {found.get('message')}"


async def told(scene: ClusterScenario, *words: str) -> None:
    """Waits until the condition says this."""
    last = ""

    def says(policy: Any) -> bool:
        nonlocal last
        last = condition(policy)
        return all(word in last for word in words)

    await scene.policy_seen("own", condition=says, within=120)


async def test_absent_measured_away_and_back(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], server: MetricsServer
) -> None:
    """The condition follows each change of the API; pods go by requests until use is known, then by the last samples.

    Samples that are too old: tests/operator/test_usage_poller.py.
    """
    control, api = plane
    await api.create_many([measurable_node(control, name, cpu="4") for name in ("busy", "idle")])
    await scene.policy("own", selects={"podSelector": {}}, cost={"utilisation": "Measured"})
    await scene.ready("busy", "idle")
    # By requests the node "busy" is empty, by use the other one is.
    await scene.create("greedy", "100m", nodeName="busy", annotations=using("3500m"))
    for number in range(3):
        await scene.create(f"lazy-{number}", "1", nodeName="idle", annotations=using("5m"))
    await told(scene, "False Unavailable", "NodeMetrics cannot be read: 404")
    await scene.create("before", "200m", annotations=using("1m"))
    assert await scene.node_of("before") == "busy"

    await server.register()
    await told(scene, "False Unavailable", "NodeMetrics cannot be read: 503")

    await server.start()
    await told(scene, "True Measured All 2 nodes have a sample of the last 180 s.")
    await scene.create("measured", "200m", annotations=using("1m"))
    assert await scene.node_of("measured") == "idle"

    await server.stop()
    await told(scene, "False Unavailable", "NodeMetrics cannot be read: 503")
    await scene.create("away", "200m", annotations=using("1m"))
    assert await scene.node_of("away") == "idle"

    await server.start()
    await told(scene, "True Measured")
    lines = [line for line in scene.operator.log.splitlines() if "usage not measured" in line and "nodes" in line]
    assert 2 <= len(lines) <= 4, lines  # absent, away, perhaps in two sentences; not one a poll
    await server.stop()
    await server.unregister()

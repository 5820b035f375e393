"""On a real API server: a pod that needs one NUMA zone waits where only the sum of the zones has room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.rights import acting_account
from thalweg_controlplane import Api, ApiError, ControlPlane

from flowcore.rules.filters import node_resource_topology

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: The kind is installed.
BREAKS_PLANE = True
CRD = Path(__file__).parent.parent / "support" / "node_topology.yaml"
REPORTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """The operator's kubeconfig, once the kind is served."""
    await plane[1].apply(yaml.safe_load(CRD.read_text()))

    async def served() -> bool:
        try:
            await plane[1].list(REPORTS)
        except ApiError:
            return False
        return True

    await until(served, 30, lambda: "NodeResourceTopology to be served")
    async with acting_account(*plane, tmp_path_factory.mktemp("account")) as kubeconfig:
        yield kubeconfig


def report(node: str, *free: int) -> dict[str, Any]:
    """Zones with so many free cpus of eight."""
    policy = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in policy.items()],
        "zones": [
            {
                "name": f"node-{at}",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "8", "allocatable": "8", "available": str(cpus)}],
            }
            for at, cpus in enumerate(free)
        ],
    }


def guaranteed(scene: ClusterScenario, name: str) -> dict[str, Any]:
    """A pod of six whole cpus whose requests are its limits."""
    amounts = {"cpu": "6", "memory": "1Mi"}
    container = {"name": "main", "image": "example.invalid/main", "resources": {"requests": amounts, "limits": amounts}}
    return scene.pod(name, containers=[container])


async def test_zones_decide_beside_the_sum(scene: ClusterScenario) -> None:
    """Two of three pods fit, the third waits; it comes when a pod goes, the next one when its node reports more."""
    await scene.api.create(report("n", 8, 8))
    await scene.nodes("n", cpu="32")
    await scene.api.create_many([guaranteed(scene, name) for name in "abc"])
    where: dict[str, str] = {}

    async def two_are_bound() -> bool:
        where.update({each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in await scene.pods()})
        return sorted(where.values()) == ["", "n", "n"]

    await until(two_are_bound, 30, lambda: f"two pods to be bound: {where}")
    (waits,) = (name for name, node in where.items() if not node)
    await scene.reason_of(waits, f"0/1 nodes are available: 1 {node_resource_topology.REASON}.")
    await scene.delete(next(name for name, node in where.items() if node))
    assert await scene.node_of(waits) == "n"
    await scene.api.create(guaranteed(scene, "late"))
    await scene.reason_of("late", node_resource_topology.REASON)
    await scene.api.apply(report("n", 8, 8, 8))
    assert await scene.node_of("late") == "n"
    await scene.api.delete(f"{REPORTS}/n")
    await scene.api.create(guaranteed(scene, "free"))
    assert await scene.node_of("free") == "n", "a node that reports nothing takes what its sum has room for"

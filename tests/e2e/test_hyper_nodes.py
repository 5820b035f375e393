"""On a real API server with Volcano's HyperNodes: gangs keep to their tiers."""

from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.parents import parent, until_served
from thalweg_controlplane import Api, ControlPlane

from flowcore.api.kinds import HYPER_NODE, POD_GROUPS
from flowcore.model.gang_spec import GangSource

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Kinds are installed.
BREAKS_PLANE = True
CRDS = [Path(__file__).parent.parent / "support" / name for name in ("pod_groups.yaml", "hyper_nodes.yaml")]
Manifest = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def account(plane: tuple[ControlPlane, Api], account: Path) -> Path:
    """Its API server has PodGroups of Volcano and HyperNodes before the operator looks: it looks again in a minute.

    Where it sees no HyperNodes, limits of gangs limit nothing.
    """
    for each in (crd for file in CRDS for crd in yaml.safe_load_all(file.read_text())):
        await plane[1].apply(each)
    await until_served(plane[1], HYPER_NODE, POD_GROUPS[GangSource.VOLCANO])
    return account


def hyper_node(name: str, tier: int, tier_name: str, *members: Manifest) -> Manifest:
    """As Volcano's benchmark/scripts/create-hypernodes.sh makes them."""
    spec = {"tier": tier, "tierName": tier_name, "members": list(members)}
    return {"apiVersion": HYPER_NODE.api_version, "kind": "HyperNode", "metadata": {"name": name}, "spec": spec}


def rack(name: str) -> Manifest:
    """Nodes with the label of a rack."""
    return hyper_node(
        name, 1, "rack", {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"topology-rack": name}}}}
    )


def spine(name: str, *racks: str) -> Manifest:
    """Racks by their names."""
    members = ({"type": "HyperNode", "selector": {"exactMatch": {"name": each}}} for each in racks)
    return hyper_node(name, 2, "spine", *members)


async def start(scene: ClusterScenario, name: str, count: int, topology: Manifest) -> None:
    """Creates a PodGroup, and its pods of a core each."""
    group = parent(POD_GROUPS[GangSource.VOLCANO], scene.namespace, name, minMember=count, networkTopology=topology)
    await scene.api.create(group)
    annotations = {"scheduling.k8s.io/group-name": name}
    await scene.api.create_many([scene.pod(f"{name}-{at}", "1", annotations=annotations) for at in range(count)])


async def test_a_gang_keeps_to_one_rack(scene: ClusterScenario) -> None:
    """Nodes in no rack stay empty. Three pods fit in no rack, and say so; a HyperNode that comes has room for them."""
    api = scene.api
    await api.create_many([rack("rack-1"), spine("spine-0", "rack-0", "rack-1")])

    async def known() -> bool:
        return (await scene.operator.metrics()).get("thalweg_watch_events_total hypernodes", 0) >= 2

    await until(known, 60, lambda: "the operator to know the HyperNodes")
    await scene.nodes("a", "b", "c", cpu="1", labels={"topology-rack": "rack-0"})
    await scene.nodes("d", "e", cpu="1", labels={"topology-rack": "rack-1"})
    await start(scene, "two", 2, {"mode": "hard", "highestTierName": "rack"})
    assert set((await scene.nodes_of("two-0", "two-1")).values()) == {"d", "e"}
    await start(scene, "three", 3, {"highestTierAllowed": 1})
    await scene.reason_of("three-0", "HyperNode tier 1")
    await api.create(rack("rack-0"))
    assert set((await scene.nodes_of("three-0", "three-1", "three-2")).values()) == {"a", "b", "c"}

"""Pods that come alone are bound while no round can be made: the last plan knows what nodes cost."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from support.cluster_scenario import ClusterScenario
from support.steering import count, no_plans
from thalweg_controlplane.client.objects import node

from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.policies import SCHEDULER_NAME
from flowcore.model.volumes import ZONE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}
SELECTED = {"labelSelector": {"matchLabels": {"app": "web"}}}


async def priced(scene: ClusterScenario) -> float:
    return await count(scene.operator, "thalweg_placements_total", "priced")


async def held_unplanned(scene: ClusterScenario) -> float:
    return await count(scene.operator, "thalweg_held_attempts_total", "unplanned")


async def test_through_kube_scheduler(scene: ClusterScenario) -> None:
    """Its first question is answered with a node: nothing is held, and nothing nominated."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.create("first")
    await scene.node_of("first")
    before = await priced(scene)
    nominated = await count(scene.operator, "thalweg_steering_writes_total", "nominate")
    held = await count(scene.operator, "thalweg_extender_answers_total", "filter", "held")
    with no_plans(scene):
        await scene.create("second")
        await scene.node_of("second")
    assert await priced(scene) == before + 1
    assert await count(scene.operator, "thalweg_steering_writes_total", "nominate") == nominated
    assert await count(scene.operator, "thalweg_extender_answers_total", "filter", "held") == held


async def test_beside_a_round_that_takes_long(scene: ClusterScenario) -> None:
    """Pods that come together while no round ends cost one attempt each, also of a class that no plan had."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.create("first")
    await scene.node_of("first")
    before, unplanned = await priced(scene), await held_unplanned(scene)
    names = [f"other{number}" for number in range(4)]
    with no_plans(scene):
        await asyncio.gather(*(scene.create(name, f"{100 + 100 * (at % 2)}m") for at, name in enumerate(names)))
        await scene.nodes_of(*names)
    assert await priced(scene) == before + len(names)
    assert await held_unplanned(scene) == unplanned


RULED: dict[str, dict[str, Any]] = {
    "apart": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{**SELECTED, "topologyKey": HOSTNAME}],
            }
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {**SELECTED, "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        ]
    },
    "near": {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**SELECTED, "topologyKey": ZONE}]}
        }
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", RULED)
async def test_pods_with_rules(scene: ClusterScenario, shape: str) -> None:
    """One every 30 ms: each is bound by its first answer, without a round, and no rule is broken."""
    zones = {f"n{number}": f"zone-{number % 3}" for number in range(12)}
    await scene.api.create_many([node(name, cpu="4", labels={ZONE: zone}) for name, zone in zones.items()])
    await scene.create("first")
    await scene.node_of("first")
    before, held = await priced(scene), await held_unplanned(scene)
    names = [f"web-{number}" for number in range(9)]
    with no_plans(scene):
        for name in names:
            await scene.create(name, labels={"app": "web"}, **RULED[shape])
            await asyncio.sleep(0.03)
        where = await scene.nodes_of(*names)
    assert await priced(scene) == before + len(names)
    assert await held_unplanned(scene) == held
    in_zones = Counter(zones[each] for each in where.values())
    assert len(set(where.values())) == len(names) or shape != "apart"
    assert set(in_zones.values()) == {3} or shape != "spread"
    assert len(in_zones) == 1 or shape != "near"


async def test_by_the_binder(scene: ClusterScenario) -> None:
    """Each to a node with room; the third pod fits nowhere, so it waits for its round and is told."""
    await scene.nodes("a", "b", "c", cpu="1")
    await scene.create("first", "600m", schedulerName=SCHEDULER_NAME)
    taken = {await scene.node_of("first")}
    with no_plans(scene):
        for name in ("second", "third"):
            await scene.create(name, "600m", schedulerName=SCHEDULER_NAME)
            taken.add(await scene.node_of(name))
        await scene.create("fourth", "600m", schedulerName=SCHEDULER_NAME)
    assert taken == {"a", "b", "c"}
    await scene.reason_of("fourth", "0/3 nodes are available")

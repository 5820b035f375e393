"""Pods that come alone are bound while no round can be made: the last plan knows what nodes cost."""

import pytest
from support.cluster_scenario import ClusterScenario
from support.steering import count, no_plans

from flowcore.model.advice import HELD_MESSAGE
from flowcore.model.policies import SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}


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
    """A pod that equals one of the last plan costs one attempt, though others wait; these wait for their plan."""
    await scene.nodes("a", "b", "c", cpu="4")
    await scene.create("first")
    await scene.node_of("first")
    for attempt in range(10):  # on a busy machine the worker may be replaced meanwhile
        with no_plans(scene) as still:
            await scene.create(f"other{attempt}", f"{200 + attempt}m")  # no plan had such a pod
            await scene.reason_of(f"other{attempt}", HELD_MESSAGE)
            before, unplanned = await priced(scene), await held_unplanned(scene)
            assert unplanned >= 1
            names = [f"second{attempt}", f"third{attempt}"]
            for name in names:
                await scene.create(name)
            await scene.nodes_of(*names)
            counted = await priced(scene) - before, await held_unplanned(scene) - unplanned
            if still():
                break
        await scene.node_of(f"other{attempt}")
    assert counted == (len(names), 0)
    await scene.node_of(f"other{attempt}")


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

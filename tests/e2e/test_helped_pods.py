"""A pod that waits is asked about, answered and bound after what lets it in; how soon is `bench/freed_room.py`'s.

How many attempts and writes that takes is asserted in tests/operator/test_helped_pods.py: here kube-scheduler's watch
may show an event before ours does, and then its attempt comes to nothing. Devices that come free are in
test_wake_ups.py.
"""

from collections.abc import AsyncIterator, Callable

import pytest
from support.cluster_scenario import ClusterScenario
from support.steering import count, no_extender_calls

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True}
STEERED: dict[str, str] = {}
#: Pods that end at once, and that wait for their room.
MANY = 200

#: Makes what the pod waits beside, and the pod; then what lets it in.
Steps = AsyncIterator[None]


async def a_pod_goes(scene: ClusterScenario) -> Steps:
    await scene.nodes("a", cpu="1")
    await scene.create("running", "1")
    await scene.node_of("running")
    await scene.create("p", "1")
    yield
    await scene.delete("running")


async def a_node_comes(scene: ClusterScenario) -> Steps:
    await scene.nodes("a", cpu="1")
    await scene.create("p", "2")
    yield
    await scene.nodes("b", cpu="2")


@pytest.mark.parametrize("kind", [a_pod_goes, a_node_comes])
async def test_it_is_bound(scene: ClusterScenario, kind: Callable[[ClusterScenario], Steps]) -> None:
    """It was told that it waits, and kube-scheduler is quiet by then; nobody asks once it is bound."""
    steps = kind(scene)
    await anext(steps)
    await scene.reason_of("p")
    await no_extender_calls(scene)
    before = await steered(scene)
    await anext(steps, None)
    await scene.node_of("p")
    assert await steered(scene) == before + 1
    await no_extender_calls(scene)


async def test_many_pods_that_go_make_few_rounds(scene: ClusterScenario) -> None:
    """Rounds for room rest, so that each places what came free meanwhile."""
    await scene.nodes(*(f"n{number}" for number in range(10)), cpu="20", pods=1000)
    await scene.api.create_many([scene.pod(f"running-{number}", "1") for number in range(MANY)])
    await scene.nodes_of(within=120)
    names = [f"waiting-{number}" for number in range(MANY)]
    await scene.api.create_many([scene.pod(name, "1") for name in names])
    await scene.wait_settled()
    await scene.reason_of(names[-1])
    before = await rounds(scene)
    await scene.delete(*(f"running-{number}" for number in range(MANY)))
    await scene.nodes_of(*names, within=120)
    assert await rounds(scene) - before < MANY / 2


async def steered(scene: ClusterScenario) -> float:
    """Answers with a pod's node, so far."""
    return await count(scene.operator, "thalweg_extender_answers_total", "filter", "steered")


async def rounds(scene: ClusterScenario) -> float:
    """Of Thalweg, so far."""
    return await count(scene.operator, "thalweg_round_phase_seconds_count", "collect")

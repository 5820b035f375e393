"""A pod whose node defers its resize waits for its victims, and is never bound, nominated or counted twice."""

import pytest
from support.fake_cluster.eviction_scene import EvictionScene, sized
from thalweg_operator.reservations.events import Answer
from thalweg_operator.reservations.waiting_codes import WAITING_FOR_VICTIMS

from flowcore.model.pods import PodClass
from flowcore.model.policies import STEERED_NAME

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


def growing(scheduler: str = "thalweg", *, by: int = 500) -> EvictionScene:
    """Node n has 1,000: d asks for 800 there, two lower pods have 300 each."""
    scene = EvictionScene()
    scene.node("n")
    wanted = PodClass(requests=sized(800).requests, priority=5)
    scene.pod("d", 800, node_name="n", pod_class=wanted, grows=(("cpu", by),), scheduler_name=scheduler)
    for name in ("a", "b"):
        scene.pod(name, 300, node_name="n")
    return scene


@BOTH
async def test_lower_pods_leave_and_the_kubelet_does_the_rest(scheduler: str) -> None:
    """It says for whom it waits, a new pod gets none of the room, and nobody else leaves while the victims end."""
    scene = growing(scheduler)
    await scene.turn()
    assert not scene.evictions()
    assert scene.told["d"] == "Waiting for 2 pods to terminate: ns/a, ns/b."
    assert scene.codes["d"] == WAITING_FOR_VICTIMS
    assert sorted(scene.answer_evictions()) == ["a", "b"]
    for name in ("a", "b"):
        scene.change(name, deleting=True)
    scene.pod("new", 300)
    scene.change("d", labels=(("some", "label"),))
    await scene.turn()
    assert scene.state.waits_for_victim("ns/d")
    usage = scene.state.cluster.occupancy.usage_of("n")
    assert (usage.amounts["cpu"], usage.pods) == (1400, 3)
    for name in ("a", "b"):
        scene.gone(name)
    await scene.turn()
    assert not scene.state.reservations
    scene.change("d", grows=())
    await scene.turn()
    assert (scene.nominated, scene.evictions(), scene.bound) == ({}, [], {})
    usage = scene.state.cluster.occupancy.usage_of("n")
    assert (usage.amounts["cpu"], usage.pods) == (800, 1)
    assert dict.fromkeys(scene.state.cluster.waiting) == {"ns/new": None}


async def test_nobody_leaves_where_others_have_made_room() -> None:
    """The node has room before anybody was evicted, and the kubelet has not tried again yet."""
    scene = growing()
    await scene.turn()
    scene.node("n", 1400)
    scene.tick()
    assert not scene.answer_evictions()


async def test_nobody_leaves_where_the_api_server_refuses_one() -> None:
    """Both would have to leave."""
    scene = growing()
    await scene.turn()
    (asked,) = scene.dry_runs()
    asked.refused("a budget forbids it", Answer.REFUSED)
    await scene.turn()
    assert not scene.evictions()
    assert scene.told["d"] == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    "change", [{"grows": ()}, {"deleting": True, "grows": ()}, {"usage": (("cpu", 300),), "grows": ()}]
)
async def test_nobody_leaves_for_a_resize_that_is_over(change: dict[str, object]) -> None:
    """It was granted after all, taken back, or its pod is being deleted: its victims are asked about no more."""
    scene = growing()
    await scene.turn()
    scene.change("d", **change)
    scene.tick()
    assert not scene.state.reservations
    assert not scene.answer_evictions()


async def test_a_node_that_has_room_evicts_nobody() -> None:
    """The kubelet has not tried it again yet."""
    scene = growing()
    scene.node("n", 1400)
    await scene.turn()
    assert (scene.told, scene.asked, dict(scene.state.reservations)) == ({}, [], {})


async def test_after_a_restart_nobody_else_leaves_while_victims_terminate() -> None:
    """Once the first has ended the second leaves, since the node lacks room still."""
    scene = growing()
    scene.change("a", deleting=True)
    await scene.turn()
    assert not scene.asked
    scene.gone("a")
    await scene.turn()
    assert scene.evictions() == ["b"]

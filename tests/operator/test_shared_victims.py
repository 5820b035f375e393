"""Victims that several pods wait for, or that leave by themselves: no other one leaves in vain for that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.fake_cluster.eviction_scene import EvictionCall, EvictionScene, sized
from thalweg_operator.reservations.events import Answer, PlanMade, PlannedPlacement

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.plan_document import PlanEviction


def full(**nodes: str) -> EvictionScene:
    """Nodes, and the pods that each is full of: their names have one letter."""
    scene = EvictionScene()
    for node, names in nodes.items():
        scene.node(node)
        for name in names:
            scene.pod(name, 1000 // len(names), node_name=node)
    return scene


def placement(scene: EvictionScene, name: str, victims: str, node: str = "n", **fields: Any) -> PlannedPlacement:
    """An urgent pod waits, and gets the place of these; one of a gang with its gang."""
    pod_class = PodClass(requests=sized(400).requests, priority=1000)
    pod = scene.pod(name, 400, pod_class=pod_class, **fields)
    policy = scene.state.shell.state.policy_of(pod)
    assert policy is not None
    evictions = tuple(PlanEviction(f"ns/{each}", f"u-{each}", node, EvictionKind.PREEMPTION) for each in victims)
    group = "" if pod.gang is None else "g"
    return PlannedPlacement(pod, policy, node, (0, 0), group, False, victims=evictions, waits=True)


def plan(scene: EvictionScene, placements: Sequence[PlannedPlacement], number: int = 1, **fields: Any) -> None:
    """A plan, or a part of one."""
    scene.state.apply(PlanMade(number, scene.state.generation, placements, **fields))


def evictions(scene: EvictionScene) -> list[EvictionCall]:
    """All that were asked for, dry runs aside."""
    return [call for call in scene.asked if not call.write.dry_run]


def test_no_other_leaves_before_the_first_one_is_answered() -> None:
    """One of three is deleted by somebody else meanwhile. Of the others the last leaves once the first one does."""
    scene = full(n="abc")
    plan(scene, [placement(scene, "u", "abc")])
    scene.change("a", deleting=True, grace_period=30.0)
    for call in scene.dry_runs():
        call.done()
    scene.now += 0.2
    scene.tick()
    (first,) = evictions(scene)
    first.refused("the budget", Answer.REFUSED)
    scene.now += 0.2
    scene.tick()
    assert len(evictions(scene)) == 1


def test_a_victim_of_two_pods_leaves_while_another_one_does_not_end() -> None:
    """Both pods are planned anew."""
    scene = full(n="ax")
    plan(scene, [placement(scene, "u1", "ax"), placement(scene, "u2", "ax")])
    for call in scene.dry_runs():
        call.done()
    (first,) = evictions(scene)
    assert first.pod.name == "a"
    scene.change("x", deleting=True, grace_period=1.0)
    scene.now += 32.0
    first.done()
    assert not scene.state.reservations


def test_nobody_leaves_for_a_gang_of_which_more_is_to_come() -> None:
    """One of its victims leaves for another pod meanwhile."""
    scene = full(n="ab", m="c")
    plan(scene, [placement(scene, "u", "a")])
    (first,) = evictions(scene)
    gang = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    one, another = placement(scene, "g0", "ab", gang=gang), placement(scene, "g1", "c", "m", gang=gang)
    plan(scene, [one], 2, atomic_groups=("g",), last=False)
    first.done()
    assert scene.asked == [first]
    plan(scene, [another], 2, first=False)
    assert {call.pod.name for call in scene.asked} > {"a"}

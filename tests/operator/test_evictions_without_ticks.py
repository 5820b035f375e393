"""Victims are evicted by what happens: by plans and by answers. No time has to pass between them."""

import pytest
from support.fake_cluster.eviction_scene import EvictionScene, sized
from thalweg_operator.reservations.events import Answer, PlanMade, PlannedPlacement

from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.pods import PodClass
from flowcore.model.policies import STEERED_NAME
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.plan_document import PlanEviction

BOTH = pytest.mark.parametrize("scheduler", ["thalweg", STEERED_NAME])


def full_node(scheduler: str, cpu: int, pods: int = 2) -> EvictionScene:
    """A node that is full of pods of priority 0, and an urgent pod."""
    scene = EvictionScene()
    scene.node("n")
    for number in range(pods):
        scene.pod(f"victim-{number}", 1000 // pods, node_name="n")
    urgent = PodClass(requests=sized(cpu).requests, priority=1000)
    scene.pod("u", cpu, pod_class=urgent, scheduler_name=scheduler)
    return scene


async def rounds(scene: EvictionScene, count: int) -> None:
    """Rounds, and nothing between them."""
    for _ in range(count):
        await scene.loop._round()


@BOTH
async def test_the_plan_evicts_who_is_replaced(scheduler: str) -> None:
    """The pod's annotation says whom it replaces, so no nomination has to be written before."""
    scene = EvictionScene()
    scene.node("n")
    scene.pod("old", 1000, node_name="n")
    scene.pod("new", 1000, replaces="old", scheduler_name=scheduler)
    await rounds(scene, 1)
    assert scene.evictions() == ["old"]
    assert scene.told["new"] == "Waiting for ns/old to terminate on n."


@BOTH
async def test_the_answer_to_the_nomination_evicts_who_is_preempted(scheduler: str) -> None:
    """The plan writes the nomination, and its answer is followed by the eviction."""
    scene = full_node(scheduler, 400)
    await rounds(scene, 2)
    assert scene.nominated == {"ns/u": "n"}
    assert len(scene.evictions()) == 1


@BOTH
async def test_the_last_dry_run_evicts_one_and_its_answer_the_others(scheduler: str) -> None:
    """The plan asks about all but one; that one leaves once the last answer is there, and then the others do."""
    scene = full_node(scheduler, 900, pods=3)
    await rounds(scene, 2)
    one, another = scene.dry_runs()
    one.done()
    assert not scene.evictions()
    another.done()
    assert scene.evictions() == ["victim-0"]
    assert scene.nominated == {"ns/u": "n"}
    scene.asked[-1].done()
    assert sorted(scene.evictions()) == ["victim-0", "victim-1", "victim-2"]


async def test_the_first_one_is_gone_before_its_eviction_is_answered() -> None:
    """A pod without a grace period: the event that it is gone evicts the others."""
    scene = full_node("thalweg", 900, pods=3)
    await rounds(scene, 2)
    for each in scene.dry_runs():
        each.done()
    scene.gone("victim-0")
    assert sorted(scene.evictions()) == ["victim-1", "victim-2"]


async def test_a_dry_run_that_was_not_sent_is_not_repeated_at_once() -> None:
    """Else a replica that does not lead would ask without an end."""
    scene = full_node("thalweg", 900)
    await rounds(scene, 2)
    for run in scene.dry_runs():
        run.shell.answered(run.write, Answer.UNWANTED)
    assert len(scene.asked) == 1


@pytest.mark.parametrize("to", ["m", ""])
def test_the_plan_evicts_who_leaves_by_itself(to: str) -> None:
    """Whether its replacement has a place or not."""
    scene = EvictionScene()
    spec = {"selects": {"podSelector": {}}, "duringExecution": {"rules": "Evict"}}
    scene.policies.offer("own", "u", 2, spec)
    scene.node("n")
    scene.node("m")
    scene.pod("web", 400, node_name="n", owner="rs")
    eviction = PlanEviction("ns/web", "u-web", "n", EvictionKind.RULE, to=to, reason="its node lost a label")
    scene.state.apply(PlanMade(1, scene.state.generation, (), evictions=[eviction]))
    assert scene.evictions() == ["web"]


def gang_in_two_parts() -> tuple[EvictionScene, list[PlannedPlacement]]:
    """Two nodes, each full of one pod, and the placements of a gang of two urgent pods."""
    scene, placements = EvictionScene(), []
    membership = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=2))
    for number in range(2):
        scene.node(f"n{number}")
        victim = scene.pod(f"victim-{number}", 1000, node_name=f"n{number}")
        urgent = PodClass(requests=sized(1000).requests, priority=1000)
        pod = scene.pod(f"g{number}", 1000, pod_class=urgent, gang=membership)
        policy = scene.state.shell.state.policy_of(pod)
        assert policy is not None
        eviction = PlanEviction(victim.key, victim.uid, victim.node_name, EvictionKind.PREEMPTION)
        place = PlannedPlacement(pod, policy, f"n{number}", (number, 0), "g", False, victims=(eviction,), waits=True)
        placements.append(place)
    return scene, placements


def test_a_group_of_which_more_is_to_come_evicts_nobody() -> None:
    """A plan comes in parts. The rest of a gang may find its places taken: time alone begins nothing."""
    scene, placements = gang_in_two_parts()
    generation = scene.state.generation
    scene.state.apply(PlanMade(1, generation, placements[:1], ("g",), last=False))
    scene.now += 1
    scene.tick()
    assert not scene.asked
    assert not scene.nominated
    scene.state.apply(PlanMade(1, generation, placements[1:], ("g",), first=False))
    assert [call.pod.name for call in scene.asked] == ["victim-1"]


def test_a_victim_that_goes_between_two_parts_lets_no_pod_of_its_gang_go_first() -> None:
    """The rest of the gang has victims of its own: none of it is bound before they have left."""
    scene, placements = gang_in_two_parts()
    generation = scene.state.generation
    scene.state.apply(PlanMade(1, generation, placements[:1], ("g",), last=False))
    scene.gone("victim-0")
    scene.state.apply(PlanMade(1, generation, placements[1:], ("g",), first=False))
    scene.tick()
    assert not scene.bound
    assert [call.pod.name for call in scene.asked] == ["victim-1"]
    scene.gone("victim-1")
    scene.tick()
    assert scene.state.held == {"ns/g0", "ns/g1"}


def test_a_gang_whose_rest_is_to_come_is_not_evicted() -> None:
    """It is partially placed for too long, and the plan in hand completes it."""
    scene, placements = EvictionScene(), []
    spec = {"selects": {"podSelector": {}}, "gangs": {"timeout": "30s", "onPartialBind": "Evict"}}
    scene.policies.offer("own", "u", 2, spec)
    membership = GangRef(GangKey(GangSource.THALWEG, "ns", "g"), GangSpec(min_member=3))
    for number in range(3):
        scene.node(f"n{number}")
        pod = scene.pod(f"g{number}", 1000, gang=membership, node_name="" if number else "n0")
        if number:
            policy = scene.state.shell.state.policy_of(pod)
            assert policy is not None
            placements.append(PlannedPlacement(pod, policy, f"n{number}", (number, 0), "g", False))
    scene.tick()
    scene.now += 29
    scene.tick()
    generation = scene.state.generation
    scene.state.apply(PlanMade(1, generation, placements[:1], ("g",), last=False))
    scene.now += 1.5
    scene.tick()
    assert not scene.evictions()
    scene.state.apply(PlanMade(1, generation, placements[1:], ("g",), first=False))
    scene.tick()
    assert set(scene.bound) == {"ns/g1", "ns/g2"}
    assert not scene.asked

"""What kube-scheduler is told of preemption for a pod: the plan's victims, or that it may choose, or nobody."""

from typing import Any

import pytest
from support.fake_cluster.steered import CLASS, SteeredCluster
from thalweg_extender.answers import to_preempt
from thalweg_extender.wire import MetaPod, MetaVictims
from thalweg_operator.reservations.ledger.reservation import Owner
from thalweg_operator.reservations.ledger.transitions import Phase

CANDIDATES: dict[str, MetaVictims | None] = {"b": MetaVictims([MetaPod("somebody")])}


def preempted(world: SteeredCluster, key: str = "ns/p") -> dict[str, list[str]]:
    """UIDs of the pods that kube-scheduler may evict for a pod, by node."""
    extender_pod = world.extender_pod(key)
    answer = to_preempt(world.view.advise(extender_pod, list(CANDIDATES)), CANDIDATES)
    return {
        node: [pod.uid for pod in victims.pods or () if pod]
        for node, victims in answer.node_name_to_meta_victims.items()
    }


def awaiting(**policy: Any) -> SteeredCluster:
    """A pod is planned on node a, and waits for the pod there to leave."""
    world = SteeredCluster(replaces={"victims": "Governed"}, **policy)
    world.pod("old", "u-old", node_name="a", scheduler_name="thalweg")
    world.pod(replaces="old")
    world.show()
    assert world.plan_pod("ns/p", "a")
    assert world.state.reservations["ns/p"].phase is Phase.AWAITING_VICTIM
    return world


@pytest.mark.parametrize("steering", ["Require", "Prefer"])
def test_victims_are_told_once_the_eviction_api_lets_them_go(steering: str) -> None:
    """Before that kube-scheduler would delete a pod that a PodDisruptionBudget may keep."""
    world = awaiting(steering=steering)
    assert preempted(world) == {}
    world.change_pod("ns/old", deleting=True)
    world.show()
    assert preempted(world) == {"a": ["u-old"]}
    world.remove_pod("ns/old")
    world.show()
    assert preempted(world) == {}


def test_a_nomination_that_follows_the_answer_is_the_plans() -> None:
    """kube-scheduler writes it itself, without our annotation: the reservation stays until a round confirms it."""
    world = awaiting()
    world.change_pod("ns/old", deleting=True)
    world.show()
    world.change_pod("ns/p", nominated_node="a")
    world.show()
    assert world.state.reservations["ns/p"].phase is Phase.AWAITING_VICTIM
    world.remove_pod("ns/old")
    world.show()
    held = world.state.reservations["ns/p"]
    assert (held.phase, held.owner, held.node) == (Phase.HELD, Owner.STEERING, "a")
    assert world.plan_pod("ns/p", "a")
    world.settle()
    assert world.schedule("ns/p")[1] == ["a"]


def test_a_nomination_for_another_node_is_somebody_elses() -> None:
    """The plan gives way to it."""
    world = awaiting()
    world.change_pod("ns/p", nominated_node="b")
    world.show()
    reservation = world.state.reservations["ns/p"]
    assert (reservation.owner, reservation.node) == (Owner.OTHERS, "b")


@pytest.mark.parametrize(
    ("policy", "chooses"),
    [
        ({"steering": "Prefer"}, True),
        ({"steering": "Prefer", "preemption": {"mode": "Never"}}, False),
        ({"steering": "Prefer", "preemption": {"after": "5m"}}, False),
        ({"steering": "Require"}, False),
    ],
)
def test_who_chooses_where_the_plan_has_no_node(policy: dict[str, Any], chooses: bool) -> None:  # noqa: FBT001
    """kube-scheduler, if the policy only prefers its plan and lets pods preempt at once; else nobody is evicted."""
    world = SteeredCluster(**policy)
    pod = world.pod()
    world.show()
    assert preempted(world) == {}, "no plan yet"
    world.set_free(pod)
    assert preempted(world) == ({"b": ["somebody"]} if chooses else {})


def test_pods_that_no_policy_governs_preempt_as_ever() -> None:
    """Their candidates come back as they were found."""
    world = SteeredCluster(selects={"podSelector": {"matchLabels": {"app": "other"}}})
    world.pod(scheduler_name="default-scheduler")
    world.show()
    assert preempted(world) == {"b": ["somebody"]}


@pytest.mark.parametrize("preemptors", [1, 2])
def test_who_preempted_gets_its_node_before_our_watch_shows_that_the_victim_left(preemptors: int) -> None:
    """Kept from the node that it is nominated for, kube-scheduler would evict another pod on another node."""
    world = SteeredCluster(selects={"podSelector": {"matchLabels": {"app": "other"}}})
    for number in range(3):
        world.pod(f"old-{number}", f"u-{number}", node_name="a", usage=CLASS.requests)
    for number in range(preemptors):
        world.pod(f"p-{number}", f"u-p-{number}", scheduler_name="default-scheduler", nominated_node="a")
    world.show()
    world.remove_pod("ns/old-0")
    assert world.schedule("ns/p-0")[1] == ["a"]

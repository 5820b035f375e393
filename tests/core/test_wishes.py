"""A waiting pod that others nominated for a node goes there if it fits, else anywhere, and before its equals."""

from dataclasses import replace

import msgspec
import pytest
from support.model import GI, amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod
from flowcore.costs import MODELS
from flowcore.model.cost_policy import CostPolicy, UnscheduledPrice
from flowcore.model.gangs import Gang
from flowcore.model.nodes import Node
from flowcore.model.pods import PreferredTerm
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import NodeSelectorTerm, Requirement
from flowcore.planning.problem.problem import Problem
from flowcore.planning.round import run_round


def planned(nodes: list[Node], *pods: PendingPod, **more: object) -> dict[str, str]:
    """The node of each pod that gets one, by name."""
    result = run_round(replace(snapshot(nodes, pods, now=1000.0), **more))
    return {each.pod.uid: each.node for each in result.placements}


def with_wish(name: str, wish: str, cpu: int = 1000, **fields: object) -> PendingPod:
    return pod(name, cpu, wish=wish, **fields)


def full(name: str, cpu: int = 4000) -> tuple[str, tuple[tuple[str, int], ...], tuple[()]]:
    return name, amounts(cpu), ()


def test_the_node_is_taken_though_others_are_better() -> None:
    """It is fuller, tainted softly, and not the preferred one."""
    at_a = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("a",)),))
    one = with_wish("p", "b", preferred_affinity=(PreferredTerm(100, at_a),) * 50)
    known = snapshot([node("a"), node("b")], [one], running=[full("b", 3000)])
    assert [each.node for each in run_round(known).placements] == ["b"]


@pytest.mark.parametrize("wish", ["gone", "full", "closed"])
def test_a_node_that_does_not_fit(wish: str) -> None:
    """It is not there, has no room, or is cordoned: the pod goes where it would have gone."""
    nodes = [node("a"), node("b"), node("closed", unschedulable=True), node("full")]
    running = [full("a", 1000), full("full")]
    for name in ("", wish):
        known = snapshot(nodes, [with_wish("p", name)], running=running)
        (placement,) = run_round(known).placements
        assert placement.node == "b"


def test_an_idle_wish_costs_a_round_nothing() -> None:
    """Pods that wish for nodes that do not fit are planned as one group with those that wish for nothing."""
    pods = [with_wish(f"p{number}", f"gone-{number}") for number in range(50)]
    known = snapshot([node("a"), node("b")], [*pods, pod("q", 1000)])
    assert len(Problem(known, {BUILT_IN.name: BUILT_IN}, MODELS).demands) == 1


@pytest.mark.parametrize("older", [True, False])
def test_its_room_is_kept_from_equals(older: bool) -> None:  # noqa: FBT001
    """Two small pods do not pass it, whoever waits for longer; with room for all, all come."""
    big = with_wish("big", "b", 4000, created=500.0)
    small = [pod(f"s{number}", 2000, created=0.0 if older else 900.0) for number in range(2)]
    assert planned([node("b")], *small, big) == {"big": "b"}
    assert planned([node("a"), node("b")], *small, big) == {"big": "b", "s0": "a", "s1": "a"}


def test_pods_of_lower_and_higher_priorities() -> None:
    """It comes before the former, and after the latter."""
    big = with_wish("big", "b", 4000, priority=10)
    assert planned([node("b")], pod("low", 1000, priority=0), big) == {"big": "b"}
    assert planned([node("b")], pod("high", 1000, priority=11), big) == {"high": "b"}
    both = planned([node("a"), node("b")], pod("high", 1000, priority=11), big)
    assert both["big"] == "b"


def test_the_room_is_kept_though_another_one_fits_nowhere_else() -> None:
    """As by kube-scheduler, which places the nominated one there; of a higher priority the other one would have it."""
    nodes = [node("a", labels=(("x", "y"),)), node("b")]
    for priority, at in ((0, "a"), (-1, "a"), (1, "b")):
        only_a = pod("q", 3000, node_selector=(("x", "y"),), priority=priority)
        assert planned(nodes, with_wish("p", "a", 3000), only_a)["p"] == at


def test_two_that_wish_for_one_node() -> None:
    """One has it, the other goes elsewhere."""
    nodes = [node("a"), node("b")]
    assert sorted(planned(nodes, with_wish("p", "b", 3000), with_wish("q", "b", 3000)).values()) == ["a", "b"]


def test_more_than_a_node_has_room_for() -> None:
    """As many as it has room for, the oldest first, wish for it. The others pass nobody on other nodes."""
    many = [with_wish(f"p{number}", "b", 2000, created=900.0 + number) for number in range(4)]
    older = [pod(f"o{number}", 2000, created=100.0) for number in range(3)]
    assert planned([node("a"), node("b")], *many, *older) == {
        "p0": "b",
        "p1": "b",
        **{each.uid: "a" for each in older[:2]},
    }
    urgent = with_wish("u", "b", 2000, priority=5, created=950.0)
    at_b = planned([node("a"), node("b")], *many, *older, urgent)
    assert sorted(name for name, at in at_b.items() if at == "b") == ["p0", "u"]


def test_a_pod_that_may_wait_for_a_cheaper_node_does_not_wait_for_a_wish_in_vain() -> None:
    """A node without room makes no other one dearer."""
    policy = Policy(
        BUILT_IN.name, cost=CostPolicy(), unscheduled=UnscheduledPrice(base=5_000, wait_for_cheaper_node=True)
    )
    known = snapshot([node("a"), node("b")], [with_wish("p", "b")], running=[full("b")])
    result = run_round(known, {policy.name: policy})
    assert [each.node for each in result.placements] == ["a"]


def test_a_gang_is_whole_or_absent_all_the_same() -> None:
    """One of its pods wishes for a node; the other has no room anywhere: nobody comes."""
    pods = [
        msgspec.structs.replace(with_wish("g0", "b"), gangs=("g",)),
        msgspec.structs.replace(pod("g1", 9000), gangs=("g",)),
    ]
    assert planned([node("a"), node("b")], *pods, gangs={"g": Gang("g", 2)}) == {}
    pods[1] = msgspec.structs.replace(pod("g1", 1000, memory=GI), gangs=("g",))
    assert planned([node("a"), node("b")], *pods, gangs={"g": Gang("g", 2)})["g0"] == "b"

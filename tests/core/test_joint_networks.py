"""Rounds with networks that are solved as a whole: refused with a sentence, or planned beside all other pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.joint_networks import drawing, joint
from support.model import amounts, node, pod, snapshot
from support.safety import check_capacity, check_complete, check_costs

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME, AffinityTerm, InterPodConstraints
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.drawn_networks.joint.program import MOST_WAYS
from flowcore.planning.round import RoundResult, run_round

ANYWHERE = joint([{"to": "Nodes", "cost": 1}])
POLICIES = {"net": drawing("net", ANYWHERE), "other": Policy("other")}
WEB = PodSignature("default", (("app", "web"),))


def governed(count: int, policy: str = "net", *, cpu: int = 1000, name: str = "", **fields: Any) -> list[PendingPod]:
    return [pod(f"{name or policy}{at}", cpu, policy=policy, **{"kind": WEB, **fields}) for at in range(count)]


def planned(state: Snapshot, network: Mapping[str, Any]) -> RoundResult:
    result = run_round(state, {"net": drawing("net", network)})
    for check in (check_complete, check_capacity):
        check(state, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    return result


# -- what is refused ---------------------------------------------------------------------------------------------------

ONE_PLACE = {"to": "n0", "maximum": 1}
REFUSED = [
    (joint([{"to": "Nodes"}], minimum=3), "arc arcs[0] to all -> all has a minimum of 3, and at most 2 can reach it"),
    (joint([ONE_PLACE], minimum=2), "arc arcs[0] to all -> all needs at least 2 and gets 1 where least is lacking"),
    (
        joint([ONE_PLACE, {"to": "pair", "gain": 2}], {"name": "pair", "arcs": [{"to": "n9"}]}, minimum=2),
        "arc arcs[0] to all -> all needs at least 2 and gets 1 where least is lacking",
    ),
    (joint([{"to": "n9", "minimum": 1}]), "all.arcs[0] to n9 has a minimum of 1, and there is no such node"),
]


@pytest.mark.parametrize(("network", "problem"), REFUSED)
def test_what_no_flow_can_meet_is_refused_with_a_sentence(network: Mapping[str, Any], problem: str) -> None:
    """It names the arc; pods of others are planned."""
    state = snapshot([node("n0"), node("n1")], [*governed(2), *governed(1, "other")])
    result = run_round(state, {**POLICIES, "net": drawing("net", network)})
    assert [each.pod.policy for each in result.placements] == ["other"]
    (contradiction,) = result.contradictions
    assert contradiction.sentence.startswith(f"the network of policy net is refused: {problem}")
    assert {each.code for each in result.unplaced} == {"NetworkRefused"}


def test_only_flows_may_have_any_number_of_ways() -> None:
    """A plain flow is solved at any size; a network with gains that is too large is refused with its size."""
    nodes = [node(f"n{at}") for at in range(MOST_WAYS)]
    assert planned(snapshot(nodes, governed(2)), ANYWHERE).certified
    halves = joint([{"to": "Nodes", "gain": 2}])
    (reason,) = {each.reason for each in planned(snapshot(nodes, governed(2)), halves).unplaced}
    assert "its pods have 10004 ways through its arcs, and a round has time for 10000: draw fewer" in reason
    assert len(planned(snapshot(nodes[:50], governed(2)), halves).placements) == 2


def test_more_arcs_than_a_round_draws() -> None:
    """They are counted before anything is solved."""
    nodes = [node(f"n{at}") for at in range(70)]
    segments = [*({"upTo": at + 1, "each": at} for at in range(31)), {"each": 99}]
    network = joint([{"to": "Nodes", "cost": segments}] * 100)
    (reason,) = {each.reason for each in planned(snapshot(nodes, governed(2)), network).unplaced}
    assert "it draws more than 200000 arcs for these nodes and pods, too many for a round" in reason


# -- beside other pods -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("priority", "first"), [(10, {"other": 2}), (-10, {"net": 2})])
def test_networks_have_their_turn_by_price(priority: int, first: dict[str, int]) -> None:
    """Room for dearer pods of others is kept, whatever the network would pay; cheaper ones get what it leaves."""
    waiting = [*governed(2), *governed(2, "other", priority=priority)]
    result = run_round(snapshot([node("n", 2000)], waiting), POLICIES)
    assert Counter(each.pod.policy for each in result.placements) == first
    assert {each.code for each in result.unplaced} == {"NodeResourcesFit"}
    assert not result.certified


def test_a_gang_that_cannot_run_keeps_no_room_from_a_network() -> None:
    """Dearer pods of a gang that is too large for the cluster wait, and the network's pods take the node."""
    gang = [msgspec.structs.replace(each, gangs=("g",)) for each in governed(3, "other", priority=10)]
    state = snapshot([node("n", 2000)], [*governed(2), *gang])
    result = run_round(replace(state, gangs={"g": Gang("g", 3)}), POLICIES)
    assert Counter(each.pod.policy for each in result.placements) == {"net": 2}


def test_a_node_that_is_overcommitted_in_what_nobody_asks_for() -> None:
    """Pods of different sizes that ask for no GPU, on a node with more GPUs in use than it has."""
    sizes = [each for cpu in (700, 900, 1100) for each in governed(1, cpu=cpu, name=str(cpu))]
    state = snapshot([node("n0", 2000, gpu=1)], sizes, [("n0", amounts(500, gpu=2), ())])
    assert (state.free < 0).any()
    assert len(planned(state, ANYWHERE).placements) == 1


def test_pods_that_a_network_leaves_out_though_nodes_have_room() -> None:
    """The reason says so: no filter keeps them out."""
    result = planned(snapshot([node("n")], governed(3)), joint([{"to": "n", "maximum": 1}]))
    told = "The network of policy net places 1 of the 3 pods like this one, and leaves this one pending."
    assert {(each.reason, each.code) for each in result.unplaced} == {(told, "NetworkUnscheduled")}


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (joint([{"to": "n7", "gain": 2}]), "there is no node n7, to which its arc leads"),
        (
            joint([{"to": "row"}], {"name": "row", "over": {"nodeLabel": "row"}, "arcs": [{"to": "Nodes", "gain": 2}]}),
            "no node has the label row, which aggregator row is over",
        ),
        (
            joint([{"to": "lost", "gain": 2}], {"name": "lost", "arcs": [{"to": "Unscheduled"}]}),
            "what its arcs lead to, such as all, has no way to any node",
        ),
    ],
)
def test_pods_that_a_network_leads_nowhere_are_told_why(network: Mapping[str, Any], told: str) -> None:
    """As those of networks that are rules."""
    (left,) = planned(snapshot([node("n")], governed(1)), network).unplaced
    assert left.reason == f"The network of policy net leads it nowhere: {told}."


@pytest.mark.parametrize(("key", "expected", "certified"), [(HOSTNAME, 7, True), ("zone", 3, False)])
def test_rules_between_pods_hold_in_a_network_that_does_not_know_them(
    key: str, expected: int, *, certified: bool
) -> None:
    """One a node is a maximum of what the node takes; for one a zone the network is solved again, without a proof."""
    term = AffinityTerm(key, LabelSelector((Requirement("app", "Exists"),)), ("default",))
    kind = PodSignature("default", (("app", "x"),), constraints=InterPodConstraints(anti_affinity=(term,)))
    nodes = [
        node(f"{zone}{at}", labels=((HOSTNAME, f"{zone}{at}"), ("zone", zone))) for zone in "abc" for at in range(20)
    ]
    result = planned(snapshot(nodes, governed(7, kind=kind)), ANYWHERE)
    places = [each.node if key == HOSTNAME else each.node[0] for each in result.placements]
    assert len(places) == len(set(places)) == expected
    assert result.certified == certified


def test_labels_that_a_network_does_not_read_make_no_kinds() -> None:
    """A thousand jobs of one app are one start of arcs, of as many ways as one pod has."""
    jobs = [pod(f"p{at}", 100, policy="net", kind=PodSignature("default", (("job", str(at)),))) for at in range(1000)]
    assert len(planned(snapshot([node("n", 200_000, pods=2000)], jobs), ANYWHERE).placements) == 1000


# -- pods that run -----------------------------------------------------------------------------------------------------


def nodes_of(network: Mapping[str, Any], runs: Sequence[str], waiting: int = 3) -> dict[str, int]:
    """How many of some pods go to each of two nodes with room."""
    state = snapshot([node("n0"), node("n1")], governed(waiting), pod_index=PodIndex.of((name, WEB) for name in runs))
    return dict(Counter(each.node for each in planned(state, network).placements))


@pytest.mark.parametrize(("count", "expected"), [(0, {"n0": 3}), (2, {"n0": 1}), (3, {}), (7, {})])
def test_a_maximum_has_what_running_pods_leave(count: int, expected: dict[str, int]) -> None:
    """Also where more run than it allows."""
    assert nodes_of(joint([{"to": "n0", "maximum": 3}]), ["n0"] * count) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, 3), (2, 1), (3, 0), (7, 0)])
def test_a_minimum_needs_what_running_pods_lack(count: int, expected: int) -> None:
    """The other node is cheaper, so no more than that go where the minimum is."""
    network = joint([{"to": "n0", "cost": 9, "minimum": 3}, {"to": "n1", "cost": 1}])
    assert nodes_of(network, ["n0"] * count).get("n0", 0) == expected


@pytest.mark.parametrize(("count", "expected"), [(0, {"n0": 2}), (1, {"n0": 2}), (2, {}), (3, {})])
def test_units_behind_a_gain_are_whole(count: int, expected: dict[str, int]) -> None:
    """One pair may run: two running pods are the pair, one of them is none."""
    pair = {"name": "pair", "arcs": [{"to": "n0"}]}
    network = joint([{"to": "Unscheduled"}, {"to": "pair", "maximum": 1, "gain": 2}], pair)
    assert nodes_of(network, ["n0"] * count) == expected


def test_running_pods_meet_minimums_first_and_then_take_the_cheapest_way() -> None:
    """Four run: one meets the minimum, two take all of the cheap way, and one takes one of three places of the dear."""
    ways = [
        {"to": "n0", "cost": 9, "minimum": 1, "maximum": 1},
        {"to": "n0", "maximum": 2},
        {"to": "n0", "cost": 5, "maximum": 3},
    ]
    assert nodes_of(joint(ways), ["n0"] * 4) == {"n0": 2}


def test_running_pods_cost_nothing_and_are_not_placed_again() -> None:
    """The cost of a plan is that of the waiting pods."""
    state = snapshot([node("n0")], governed(3), pod_index=PodIndex.of([("n0", WEB)] * 5))
    result = planned(state, joint([{"to": "n0", "cost": 7}]))
    assert (result.cost, len(result.placements)) == (21, 3)
    assert result.certified


def test_what_a_network_before_placed_counts_like_running_pods() -> None:
    """Its places are taken as the second network is asked for."""
    network = joint([{"to": "n0", "maximum": 3}, {"to": "n1", "cost": 9, "maximum": 3}])
    policies = {name: drawing(name, network) for name in ("net", "second")}
    state = snapshot([node("n0"), node("n1")], [*governed(4), *governed(4, "second", priority=-1)])
    result = run_round(state, policies)
    assert Counter((each.pod.policy, each.node) for each in result.placements) == {
        ("net", "n0"): 3,
        ("net", "n1"): 1,
        ("second", "n1"): 2,
    }

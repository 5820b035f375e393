"""Networks as policies draw them, beside all flows of small ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from support.drawn_flows import (
    DrawnCase,
    Flows,
    TooMany,
    draw_case,
    draw_case_of_single_pods,
    draw_case_with_gains,
)
from support.model import GI, amounts, node, pod, snapshot
from support.profiles import examples

from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.planning.round import RoundResult, run_round


def planned(case: DrawnCase, network: dict[str, Any]) -> RoundResult:
    nodes = [node(name, 4000, 32 * GI, labels=tuple(sorted(labels.items()))) for name, labels in case.nodes.items()]
    pending = [
        pod(f"t{at}", cpu, GI, policy="p", kind=PodSignature("default", tuple(labels.items())))
        for at, (labels, cpu) in enumerate(case.pods)
    ]
    running = PodIndex.of((name, PodSignature("default", tuple(labels.items()))) for labels, name in case.runs)
    taken = [(name, amounts(4000 - room), ()) for name, room in case.room.items()]
    spec = {"selects": {"podSelector": {}}, "unscheduled": {"per": "Pod"}, "network": network}
    policy = parse_policy("p", spec, BUILT_IN_MODELS)
    return run_round(snapshot(nodes, pending, taken, pod_index=running), {"p": policy})


def nodes_of(
    network: dict[str, Any], *pods: dict[str, str], runs: Sequence[tuple[dict[str, str], str]] = ()
) -> Counter[str]:
    """How many of some pods go to each of two nodes with room for four; of these m1 has the label pool=fast."""
    labels = {"m0": {"kubernetes.io/hostname": "m0"}, "m1": {"kubernetes.io/hostname": "m1", "pool": "fast"}}
    case = DrawnCase(network, labels, dict.fromkeys(labels, 4000), [(each, 1000) for each in pods], runs)
    return Counter(each.node for each in planned(case, network).placements)


A, B, EVERYBODY = {"app": "a"}, {"app": "b"}, {"podSelector": {}}


def test_a_running_pod_counts_once() -> None:
    """Though two arcs begin at it, or it is one of the policy and one of all that run."""
    both = [{"from": EVERYBODY, "to": "g", "maximum": 1}, {"from": EVERYBODY, "to": "g", "cost": 5}]
    network = {"aggregators": [{"name": "g", "arcs": [{"to": "m0", "maximum": 2}]}], "arcs": both}
    assert nodes_of(network, A, runs=[(A, "m0")]) == {"m0": 1}
    network["arcs"] = [{"from": EVERYBODY, "to": "g"}, {"from": {"runningPods": {}}, "to": "g"}]
    assert nodes_of(network, A, runs=[(A, "m0")]) == {"m0": 1}
    assert nodes_of(network, A, runs=[(A, "m0"), (A, "m0")]) == {}


def test_a_minimum_of_an_arc_that_leads_nowhere_is_not_met_in_silence() -> None:
    pool = {"name": "pool", "over": {"nodeLabel": "row"}, "arcs": [{"to": "Nodes"}]}
    arcs = [{"from": EVERYBODY, "to": "pool", "minimum": 1}, {"from": EVERYBODY, "to": "Nodes"}]
    assert nodes_of({"aggregators": [pool], "arcs": arcs}, A) == {}
    arcs[0]["wholeOrNone"] = True
    assert nodes_of({"aggregators": [pool], "arcs": arcs}, A).total() == 1


def test_labels_that_differ_between_the_pods_of_a_set_are_read_where_a_drawing_names_them() -> None:
    key = "apps.kubernetes.io/pod-index"
    first = {"from": {"podSelector": {"matchLabels": {key: "0"}}}, "to": "m0"}
    others = [{"key": key, "operator": "NotIn", "values": ["0"]}]
    rest = {"from": {"podSelector": {"matchExpressions": others}}, "to": "m1"}
    assert nodes_of({"arcs": [first, rest]}, {key: "0"}, {key: "1"}, {key: "2"}) == {"m0": 1, "m1": 2}


def test_segments_of_an_arc_with_a_gain_are_those_of_one_arc() -> None:
    """Two units enter it, for 0 and 100; one leaves, and is two pods again behind the next arc."""
    aggregators = [
        {"name": "g", "arcs": [{"to": "h", "gain": "1/2", "cost": [{"upTo": 1, "each": 0}, {"each": 100}]}]},
        {"name": "h", "arcs": [{"to": "m0", "gain": 2}]},
    ]
    network = {"aggregators": aggregators, "arcs": [{"from": EVERYBODY, "to": "g"}]}
    case = DrawnCase(network, {"m0": {"kubernetes.io/hostname": "m0"}}, {"m0": 4000}, [(A, 1000), (A, 1000)], ())
    result = planned(case, network)
    assert len(result.placements) == 2
    assert result.cost == 100


def test_arcs_that_take_none_or_enough_are_each_their_own() -> None:
    """Three pods are enough for the dear one of two arcs to a node, and too few for the cheap one."""
    dear = {"to": "m0", "minimum": 3, "wholeOrNone": True, "cost": [{"upTo": 1, "each": 0}, {"each": 90_000}]}
    cheap = {"to": "m0", "minimum": 4, "wholeOrNone": True, "cost": [{"upTo": 5, "each": 5}, {"each": 6}]}
    arcs = [{"from": EVERYBODY, "to": "g"}, {"from": EVERYBODY, "to": "m1", "cost": 1000}]
    network = {"aggregators": [{"name": "g", "arcs": [dear, cheap]}], "arcs": arcs}
    assert nodes_of(network, A, A, A) == {"m1": 3}
    assert nodes_of(network, A, A, A, A) == {"m0": 4}


def test_running_pods_that_have_a_choice_count_on_their_cheapest_arc_with_room() -> None:
    """The first of three takes the cheap place; so two of four are free at the dear arc, and none at the cheap one."""
    cheap, dear = {"to": "m0", "maximum": 1}, {"to": "m0", "maximum": 4, "cost": 7}
    network = {"arcs": [{"from": EVERYBODY, **arc} for arc in (cheap, dear)]}
    assert nodes_of(network, A, A, A, runs=[(A, "m0")] * 3) == {"m0": 2}


def test_a_cheap_way_is_left_to_the_pods_that_have_no_other() -> None:
    """One of the kinds may take both ways, and the cheap one takes one pod."""
    ways = [{"name": "x", "arcs": [{"to": "m0", "maximum": 1}]}, {"name": "y", "arcs": [{"to": "m0", "maximum": 9}]}]
    arcs = [{"from": EVERYBODY, "to": "x"}, {"from": {"podSelector": {"matchLabels": A}}, "to": "y", "cost": 5}]
    assert nodes_of({"aggregators": ways, "arcs": arcs}, A, A, B) == {"m0": 3}


def test_a_unit_stays_inside_the_values_that_it_passed() -> None:
    """The arc from a rack to all nodes leads to the nodes of the rack, and counts its units over all racks."""
    rack = {"name": "rack", "over": {"nodeLabel": "pool"}, "arcs": [{"to": "any"}]}
    network = {"aggregators": [rack, {"name": "any", "arcs": [{"to": "Nodes"}]}]}
    network["arcs"] = [{"from": EVERYBODY, "to": "rack"}]
    assert nodes_of(network, A, A) == {"m1": 2}
    rack["arcs"] = [{"to": "any", "maximum": 1}]
    network["aggregators"][0] = rack
    assert nodes_of(network, A, A) == {"m1": 1}


@pytest.mark.parametrize(("gain", "expected"), [(2, {"m0": 4}), ("1/2", {"m0": 1}), ("3/2", {"m0": 3}), (1, {"m0": 2})])
def test_a_unit_is_as_many_pods_as_the_gains_make_of_it(gain: object, expected: dict[str, int]) -> None:
    """Two units may pass the last arc; five pods wait, of which four have room."""
    arcs = [{"from": EVERYBODY, "to": "m0", "gain": gain, "maximum": 2}]
    assert nodes_of({"arcs": arcs}, A, A, A, A, A) == expected


def test_a_pod_of_two_units_pays_for_both() -> None:
    """The first pod pays 1 and 2, the second one twice 9."""
    cost = [{"upTo": 1, "each": 1}, {"upTo": 2, "each": 2}, {"each": 9}]
    network = {"arcs": [{"from": EVERYBODY, "to": "m0", "gain": "1/2", "cost": cost}]}
    case = DrawnCase(network, {"m0": {"kubernetes.io/hostname": "m0"}}, {"m0": 4000}, [(A, 1000), (A, 1000)], ())
    assert planned(case, network).cost == 3 + 18


#: What no rules of pods say.
NOT_PLANNED = "has a minimum, and leads to Unscheduled too", "a unit on ", "pods wait for less behind it"
NOWHERE = {"arcs": [{"from": {"podSelector": {}}, "to": "Nodes", "maximum": 0}]}


@pytest.mark.parametrize(
    "drawn",
    [draw_case, partial(draw_case, running=True), draw_case_of_single_pods, draw_case_with_gains],
    ids=["waiting", "running", "single", "gains"],
)
def test_no_flow_is_better_than_the_plan(drawn: Callable[[int], DrawnCase]) -> None:
    """And its cost is what the drawing says, no bound is above it, and what cannot be is refused.

    So are few others, with a sentence that says why.
    """
    tried = refused = 0
    for seed in range(examples(700)):
        case = drawn(seed)
        left = {each.pod.uid: each.price for each in planned(case, NOWHERE).unplaced}
        try:
            least = Flows(case, [left[f"t{at}"] for at in range(len(case.pods))]).least_costs()
        except TooMany:
            continue
        tried += 1
        result = planned(case, case.network)
        nodes = {each.pod.uid: each.node for each in result.placements}
        where = tuple(nodes.get(f"t{at}") for at in range(len(case.pods)))
        is_refused = {each.code for each in result.unplaced} == {"NetworkRefused"}
        if least and is_refused:
            refused += 1
            assert any(told in result.unplaced[0].reason for told in NOT_PLANNED), (seed, case)
            continue
        assert is_refused == (not least), (seed, case)
        if least:
            assert where in least, (seed, case, where)
            assert result.cost == least[where] == min(least.values()), (seed, case, where, least)
            assert result.lower_bound <= result.cost
    assert tried
    assert refused <= 1 + tried / 10

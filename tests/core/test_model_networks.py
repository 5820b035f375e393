"""Networks that cost models draw in Python: the same as those that policies draw, and no harm to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.constrained_snapshots import constrained_snapshots
from support.large_snapshots import with_gangs
from support.model import amounts, node, pod, snapshot
from support.network_policies import drawing
from support.profiles import examples
from support.safety import (
    check_capacity,
    check_complete,
    check_constraints,
    check_costs,
    check_filters,
    check_gangs,
    check_host_ports,
)

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.costs import MODELS
from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.networks import NODES, UNSCHEDULED, Aggregator, CostPart, NetworkArc, NetworkSpec, Over
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.round import RoundResult, run_round
from flowcore.rules.reasons.codes import CODES

ANYWHERE = NetworkSpec(arcs=(from_pods({}, arc_to(NODES)),))


class Drawn(NetworkCostModel):
    """What a function draws."""

    name = "Drawn"

    def __init__(self, draw: Callable[[NetworkView], Any]) -> None:
        self._draw = draw

    def network(self, view: NetworkView) -> NetworkSpec:
        return self._draw(view)


POLICIES = {"net": Policy("net", cost=CostPolicy("Drawn")), "other": Policy("other")}


def planned(state: Snapshot, draw: Callable[[NetworkView], Any], **policies: Policy) -> RoundResult:
    return run_round(state, {**POLICIES, **policies}, {**MODELS, "Drawn": Drawn(draw)})


def governed(
    count: int, policy: str = "net", labels: Sequence[tuple[str, str]] = (), **fields: Any
) -> list[PendingPod]:
    kind = PodSignature("default", tuple(labels))
    return [pod(f"{policy}{at}", 1000, policy=policy, kind=kind, **fields) for at in range(count)]


# -- what a model draws ------------------------------------------------------------------------------------------------


def test_a_model_draws_what_a_policy_draws() -> None:
    """The short forms give the value that the JSON gives, and the plan is the same."""
    rising = [{"upTo": 1, "each": 0}, {"each": 700}]
    json = {
        "aggregators": [
            {"name": "rack", "over": {"nodeLabel": "rack"}, "arcs": [{"to": "Nodes", "cost": {"of": "Utilisation"}}]},
            {"name": "pair", "arcs": [{"to": "Nodes", "gain": "3/2", "minimum": 2, "wholeOrNone": True}]},
        ],
        "arcs": [
            {"from": {"podSelector": {"matchLabels": {"app": "web"}}}, "to": "rack", "maximum": 3, "cost": rising},
            {"from": {"podSelector": {}}, "to": "Unscheduled", "cost": 5},
            {"from": {"podSelector": {}}, "to": "pair"},
            {"from": {"runningPods": {}}, "to": "rack"},
        ],
    }
    spec = NetworkSpec(
        (
            Aggregator("rack", Over(node_label="rack"), (arc_to(NODES, part=CostPart.UTILISATION),)),
            Aggregator("pair", arcs=(arc_to(NODES, gain=Fraction(3, 2), minimum=2, whole_or_none=True),)),
        ),
        (
            from_pods({"app": "web"}, arc_to("rack", [(0, 1), (700, None)], maximum=3)),
            from_pods({}, arc_to(UNSCHEDULED, 5)),
            from_pods({}, arc_to("pair")),
            from_pods({}, arc_to("rack"), runs=True),
        ),
    )
    assert drawing("net", json).network == spec


def test_a_network_of_a_model_is_rules_where_single_pods_can_keep_to_it() -> None:
    """At most two in each rack, those that run among them; the plan is that of the policy that draws it."""
    racks = Aggregator("rack", Over(node_label="rack"), (arc_to(NODES, part=CostPart.UTILISATION),))
    spec = NetworkSpec((racks,), (from_pods({}, arc_to("rack", maximum=2)),))
    nodes = [node(f"{rack}{at}", labels=(("rack", rack),)) for rack in "ab" for at in (1, 2)]
    web = PodSignature("default", ())
    state = snapshot(nodes, governed(4), [("a1", amounts(500), ())], pod_index=PodIndex.of([("a1", web)]))
    result = planned(state, lambda _: spec)
    assert sorted(each.node for each in result.placements) == ["a2", "b1", "b1"]
    again = run_round(state, {"net": msgspec.structs.replace(POLICIES["net"], network=spec, cost=CostPolicy())})
    assert [each.node for each in again.placements] == [each.node for each in result.placements]


def test_a_policy_that_draws_a_network_itself_asks_no_model() -> None:
    own = drawing("net", {"arcs": [{"from": {"podSelector": {}}, "to": "b"}]})
    own = msgspec.structs.replace(own, cost=CostPolicy("Drawn"))
    result = planned(snapshot([node("a"), node("b")], governed(1)), lambda _: 1 // 0, net=own)
    assert [each.node for each in result.placements] == ["b"]


# -- what a model sees -------------------------------------------------------------------------------------------------


def test_a_model_sees_kinds_of_pods_and_what_runs() -> None:
    seen = list[Any]()

    def look(view: NetworkView) -> NetworkSpec:
        (web, db) = view.pods
        seen.extend([view.policy.name, (dict(web.labels), web.count), (db.namespace, db.priority, db.count)])
        (in_rack,) = view.by_label("rack")["a"]
        seen.extend([db.requests["cpu"], view.running({"app": "web"}), in_rack.name])
        return ANYWHERE

    index = PodIndex.of([("n", PodSignature("default", (("app", "web"), ("x", "y"))))])
    waiting = [
        *governed(2, labels=[("app", "web")]),
        pod("db", 700, policy="net", priority=3, kind=PodSignature("shop")),
        *governed(1, "other"),
    ]
    nodes = [node("n", labels=(("rack", "a"),)), node("m")]
    assert len(planned(snapshot(nodes, waiting, pod_index=index), look).placements) == 4
    assert seen == ["net", ({"app": "web"}, 2), ("shop", 3, 1), 700, {"n": 1}, "n"]


@pytest.mark.parametrize(("utilisation", "expected"), [(Utilisation.REQUESTED, "idle"), (Utilisation.MEASURED, "busy")])
def test_a_model_sees_the_load_that_its_policy_counts(utilisation: Utilisation, expected: str) -> None:
    """Pods that request much and use nothing: by measurement their node is the emptier one."""

    def emptiest(view: NetworkView) -> NetworkSpec:
        return NetworkSpec(arcs=(from_pods({}, arc_to(min(view.nodes, key=view.taken).name)),))

    state = snapshot([node("busy"), node("idle")], governed(1), [("busy", amounts(2000), ())])
    state = replace(state, measured=np.array([[100.0, 0.0, np.nan], [3000.0, 0.0, np.nan]]))
    result = planned(state, emptiest, net=Policy("net", cost=CostPolicy("Drawn", utilisation=utilisation)))
    assert [each.node for each in result.placements] == [expected]


# -- what is refused ---------------------------------------------------------------------------------------------------


def to_nodes(name: str = "a", *arcs: NetworkArc) -> Aggregator:
    return Aggregator(name, arcs=arcs or (arc_to(NODES),))


def of_all(*arcs: NetworkArc, points: Sequence[Aggregator] = ()) -> NetworkSpec:
    return NetworkSpec(tuple(points), tuple(from_pods({}, arc) for arc in arcs))


REFUSED: list[tuple[Any, str]] = [
    (None, "network: is NoneType in place of NetworkSpec"),
    ([arc_to(NODES)], "network: is list in place of NetworkSpec"),
    (NetworkSpec(), "network.arcs: no arc begins at waiting pods, so none could be placed"),
    (NetworkSpec(arcs=(arc_to(NODES),)), "network.arcs[0]: Object missing required field `tail`"),  # type: ignore[arg-type]
    (of_all(NetworkArc(NODES, minimum=1.5)), "network.arcs[0].arc.minimum: Expected `int`, got `float`"),  # type: ignore[arg-type]
    (of_all(arc_to(NODES, maximum=-1)), "network.arcs[0].arc.maximum: Expected `int` >= 0"),
    (of_all(arc_to(NODES, 10**12)), "network.arcs[0].arc.cost.segments[0].cost: Expected `int` <= 1000000000"),
    (of_all(arc_to(NODES, minimum=3, maximum=2)), "network.arcs[0].minimum: 3 is above the maximum of 2"),
    (of_all(arc_to(NODES, [(9, 1), (5, None)])), "network.arcs[0].cost[1].each: 5 is below the 9"),
    (of_all(arc_to(NODES, gain=0)), "network.arcs[0].gain: 0 is not above 0, of numbers up to 1000000"),
    (of_all(NetworkArc(NODES, gain=(1, 0))), "network.arcs[0].gain: 1/0 is not above 0"),
    (of_all(arc_to("A b")), 'network.arcs[0].to: "A b" is neither Nodes, Unscheduled, an aggregator'),
    (of_all(arc_to("a"), points=[to_nodes(), to_nodes()]), 'network.aggregators[1].name: "a" is the name of another'),
    (
        of_all(arc_to("a"), points=[to_nodes("a", arc_to("b")), to_nodes("b", arc_to("a"))]),
        "network.aggregators: form a cycle, in which flow could turn without a pod: a -> b -> a",
    ),
]


@pytest.mark.parametrize(("value", "problem"), REFUSED, ids=[problem for _, problem in REFUSED])
def test_a_value_that_is_no_network_makes_its_pods_wait(value: object, problem: str) -> None:
    """They are told what is wrong with it. Nobody else suffers: the other policy's pod has its node."""
    result = planned(snapshot([node("n")], [*governed(1), *governed(1, "other")]), lambda _: value)
    assert [each.pod.policy for each in result.placements] == ["other"]
    (left,) = result.unplaced
    told = "the network of policy net is refused: method network of cost model Drawn returned what is none: "
    assert left.reason.lower().startswith(f"{told}{problem}".lower())
    assert left.code == "NetworkRefused"
    assert [each.sentence.startswith(told) for each in result.contradictions] == [True]


def some_network(kind: str) -> Callable[[NetworkView], NetworkSpec]:
    """A network that is rules, one in which pods have a choice, one that is none, or an exception."""

    def draw(_: NetworkView) -> NetworkSpec:
        if kind == "fails":
            raise ValueError("no network today")
        to_zones = arc_to("zone", [(0, 2), (9, None)], maximum=3, minimum=int(kind == "minimums"))
        zones = Aggregator("zone", Over(node_label="zone"), (arc_to(NODES, part=CostPart.UTILISATION),))
        spec = NetworkSpec(
            (to_nodes("all", to_zones), zones), (from_pods({}, arc_to("all", gain=1 + (kind == "gains"))),)
        )
        return NetworkSpec() if kind == "nothing" else spec

    return draw


@settings(max_examples=examples(40), deadline=None)
@given(
    with_gangs(constrained_snapshots()),
    st.sampled_from(["gains", "minimums", "plain", "nothing", "fails"]),
    st.data(),
)
def test_no_network_makes_a_plan_unsafe(crowd: Snapshot, kind: str, data: st.DataObject) -> None:
    """Whoever else waits, and whatever rules, ports and gangs there are: every safety property holds."""
    by_network = st.booleans().map(lambda own: "net" if own else BUILT_IN.name)
    pending = tuple(msgspec.structs.replace(each, policy=data.draw(by_network)) for each in crowd.pending)
    crowd, policies = replace(crowd, pending=pending), {**POLICIES, BUILT_IN.name: BUILT_IN}
    result = planned(crowd, some_network(kind), **{BUILT_IN.name: BUILT_IN})
    for check in (check_complete, check_capacity, check_host_ports, check_filters):
        check(crowd, result)
    check_constraints(crowd, result, policies)
    check_gangs(crowd, result)
    check_costs(result)
    assert result.lower_bound <= result.cost
    left = [each for each in result.unplaced if each.pod.policy == "net"]
    assert all(each.reason.endswith(".") and each.code in CODES for each in left)
    if kind == "fails":
        told = "method network of cost model Drawn raised ValueError('no network today')"
        refused = {each.sentence for each in result.contradictions if each.policy == "net"}
        decided = [each for each in left if each.reason.startswith("The network of")]
        assert refused == ({f"the network of policy net is refused: {told}"} if decided else set())
        assert not [each for each in result.placements if each.pod.policy == "net"]

"""The flow in networks of cost models in Python, and what an asker may see of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli import node, pod
from support.rack_networks import BY_RACK, many_nodes, many_pods
from support.scenario_state import scenario_of

from flowcore.costs import MODELS
from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.errors import ModelError
from flowcore.model.networks import NODES, Aggregator, NetworkSpec
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.flow.flow_arcs import FlowArc, rank, summed
from flowcore.questions.scenario.network_flow import NetworkQuery, PolicyFlow, answer_network

NOW = 1_800_000_000.0
RUNNING = {"phase": "Running"}


class Budget(NetworkCostModel):
    """At most three pods, those that run among them."""

    name = "Budget"

    def network(self, view: NetworkView) -> NetworkSpec:
        """All pods to the budget, and from there to the nodes."""
        budget = Aggregator("budget", arcs=(arc_to("all", maximum=3),))
        return NetworkSpec((budget, Aggregator("all", arcs=(arc_to(NODES, 7),))), (from_pods({}, arc_to("budget")),))


class Halves(Budget):
    """A network with a gain: of two units one is a pod."""

    name = "Halves"

    def network(self, view: NetworkView) -> NetworkSpec:
        """Half of what enters leaves."""
        whole = super().network(view)
        return NetworkSpec(whole.aggregators, (from_pods({}, arc_to("budget", gain=Fraction(1, 2))),))


class Broken(Budget):
    """It raises."""

    name = "Broken"

    def network(self, view: NetworkView) -> NetworkSpec:
        """No network."""
        raise LookupError(view.policy.name)


def web(name: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": "web"}}
    return pod(name, metadata=metadata, schedulerName="thalweg", **spec)


def flow_by(model: str) -> PolicyFlow:
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "web"},
        "spec": {"selects": {"podSelector": {"matchLabels": {"app": "web"}}}},
    }
    runs = web("runs", nodeName="a", status=RUNNING)
    models = {**MODELS, "Budget": Budget(), "Halves": Halves(), "Broken": Broken()}
    scenario = scenario_of([node("a"), node("b"), policy, runs, *(web(f"w{number}") for number in range(4))])
    drawing = scenario.policies["web"]
    cost = msgspec.structs.replace(drawing.cost, model=model)
    scenario.policies["web"] = msgspec.structs.replace(drawing, cost=cost)
    (flow,) = answer_network(scenario, NetworkQuery("web"), AnswerContext(NOW, models)).policies
    return flow


def test_a_cost_model_that_draws_rules_has_the_flow_of_all_pods() -> None:
    flow = flow_by("Budget")
    assert [(arc.tail, arc.head, arc.flow, arc.state) for arc in flow.arcs] == [
        ("pods", "budget", 3, ""),
        ("budget", "all", 3, "full"),
        ("all", "2 nodes", 3, ""),
        ("pods", "Unscheduled", 2, ""),
    ]
    assert (flow.drawn, flow.placed, flow.left, flow.notes) == (True, 2, 2, [])


def test_a_cost_model_whose_network_is_solved_as_a_whole_has_the_flow_of_the_solution() -> None:
    """Two units come for the pod that runs; two of four pods wait, as their units are lost."""
    flow = flow_by("Halves")
    assert [(arc.tail, arc.head, arc.flow, arc.gain) for arc in flow.arcs] == [
        ("pods", "budget", 6, "1/2"),
        ("budget", "all", 3, "1"),
        ("all", "2 nodes", 3, "1"),
        ("pods", "Unscheduled", 2, "1"),
    ]


def test_a_cost_model_that_raises_is_a_note() -> None:
    (note,) = flow_by("Broken").notes
    told = "the network of policy web is refused: method network of cost model Broken raised LookupError('web')"
    assert note == told


def test_workloads_of_hidden_namespaces_have_no_names() -> None:
    secret = pod("s", metadata={"name": "s", "namespace": "secret", "uid": "s"}, schedulerName="thalweg")
    scenario = scenario_of([node("a"), web("w"), secret])
    context = AnswerContext(NOW, sees=lambda namespace: namespace != "secret")
    (flow,) = answer_network(scenario, NetworkQuery(), context).policies
    assert {arc.tail for arc in flow.arcs} == {"cluster", "pod/default/w", "pods of other namespaces"}


@pytest.mark.parametrize("nodes", [False, True])
def test_12_500_nodes_are_few_rows(*, nodes: bool) -> None:
    """No more than are asked for, whatever the network has, and no pod is missing in them."""
    scenario = scenario_of([*many_nodes(12_500, 250), *many_pods(300), BY_RACK])
    (flow,) = answer_network(scenario, NetworkQuery("by-rack", nodes, 40), AnswerContext(NOW, MODELS)).policies
    assert flow.all_arcs == (12_750 if nodes else 500)
    assert len(flow.arcs) <= 40
    assert (
        sum(arc.flow for arc in flow.arcs if arc.from_pods) == sum(arc.flow for arc in flow.arcs if arc.to_nodes) == 300
    )
    assert sum(arc.arcs for arc in flow.arcs if arc.to_nodes) == 12_500
    assert flow.arcs == sorted(flow.arcs, key=rank)
    assert any(arc.head.startswith("rack: ") for arc in flow.arcs)


def test_rows_are_a_number() -> None:
    with pytest.raises(ModelError, match="most -1: give a number from 0 on"):
        answer_network(scenario_of([node("a")]), NetworkQuery(most=-1), AnswerContext(NOW, MODELS))


ENDS = st.sampled_from(["a", *(f"rack r{number}" for number in range(9)), *(f"p{number}" for number in range(9))])


@given(
    st.lists(st.tuples(ENDS, ENDS, st.integers(0, 9), st.sampled_from(["", "full", "over", "short"])), max_size=60),
    st.integers(8, 60),
)
def test_rows_of_any_network_have_the_flow_of_its_pods(drawn: list[tuple[str, str, int, str]], most: int) -> None:
    """And any state of an arc above or below a limit is that of a row that stands for it."""
    arcs = [
        FlowArc(tail, head, flow, state=state, full=int(state in ("full", "over")), from_pods=place % 2 == 0,
                to_nodes=place % 3 == 0)
        for place, (tail, head, flow, state) in enumerate(drawn)
    ]  # fmt: skip
    rows = summed(arcs, most)
    assert len(rows) <= most
    assert sum(arc.flow for arc in rows if arc.from_pods) == sum(arc.flow for arc in arcs if arc.from_pods)
    assert any(row.state == "over" for row in rows) or not any(
        arc.state == "over" and (arc.from_pods or arc.to_nodes) for arc in arcs
    )


def drawn_by(network: dict[str, Any], *objects: dict[str, Any], nodes: bool = False) -> PolicyFlow:
    """The flow in a drawing for pods of the scheduler thalweg."""
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "p"},
        "spec": {"selects": {"podSelector": {}}, "network": network},
    }
    query = NetworkQuery("p", nodes)
    (flow,) = answer_network(scenario_of([policy, *objects]), query, AnswerContext(NOW, MODELS)).policies
    return flow


ALL: dict[str, Any] = {"podSelector": {}}
RISING = [{"upTo": 1, "each": 10}, {"each": 20}]


@pytest.mark.parametrize(
    "joint", [{"minimum": 2, "maximum": 4, "wholeOrNone": True}, {"gain": 2, "maximum": 4, "minimum": 1}]
)
@pytest.mark.parametrize("from_pods", [True, False])
def test_several_costs_of_an_arc_that_is_decided_as_one(joint: dict[str, Any], *, from_pods: bool) -> None:
    """Its segments are one row, with what it says of all its units."""
    arc = {"to": "B", "cost": RISING, **joint}
    last = {"name": "B", "arcs": [{"to": "Nodes"}]}
    drawing: dict[str, Any] = {"aggregators": [last], "arcs": [{"from": ALL, **arc}]}
    if not from_pods:
        drawing = {"aggregators": [{"name": "A", "arcs": [arc]}, last], "arcs": [{"from": ALL, "to": "A"}]}
    flow = drawn_by(drawing, node("a"), web("w0"), web("w1"))
    (row,) = (each for each in flow.arcs if each.head == "B")
    assert (row.tail, row.minimum, row.maximum, row.gain, row.whole_or_none) == (
        "pods" if from_pods else "A", joint["minimum"], 4, str(joint.get("gain", 1)), "wholeOrNone" in joint,
    )  # fmt: skip
    assert (row.flow, row.price, row.state) == (2 if "wholeOrNone" in joint else 1, 20, "")
    assert flow.placed == 2
    assert flow.notes == []


def test_pods_that_have_a_choice_are_on_the_arcs_that_the_plan_chose() -> None:
    """One kind may take both ways; the cheap one goes to the pod that has no other."""
    ways = [{"name": "x", "arcs": [{"to": "a", "maximum": 1}]}, {"name": "y", "arcs": [{"to": "a", "maximum": 9}]}]
    web_pods: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "web"}}}
    arcs = [{"from": ALL, "to": "x"}, {"from": web_pods, "to": "y", "cost": 5}]
    other = web("z")
    other["metadata"]["labels"] = {"app": "db"}
    flow = drawn_by({"aggregators": ways, "arcs": arcs}, node("a"), other, web("w0"), web("w1"))
    assert {(each.tail, each.head): each.flow for each in flow.arcs} == {
        ("pods", "x"): 1, ("pods app=web", "y"): 2, ("x", "a"): 1, ("y", "a"): 2,
    }  # fmt: skip


def test_each_arc_to_unscheduled_has_its_own_pods_and_price() -> None:
    """Pods take the cheapest that is drawn for them; where none waits the price is the one that is drawn."""
    waits = [{"from": {"podSelector": {"matchLabels": {"app": app}}}, "to": "Unscheduled", "cost": cost}
             for app, cost in (("web", 500), ("web", 900), ("other", 7))]  # fmt: skip
    bare = pod("bare", metadata={"name": "bare", "namespace": "default", "uid": "bare"}, schedulerName="thalweg")
    drawing = {"arcs": [{"from": ALL, "to": "gone"}, *waits]}
    flow = drawn_by(drawing, node("a"), web("w0"), web("w1"), bare)
    assert {arc.tail: (arc.flow, arc.price, arc.highest_price) for arc in flow.arcs if arc.head == "Unscheduled"} == {
        "pods app=web": (2, 100_500, 100_500),
        "pods app=other": (0, 7, 7),
        "pods": (1, 100_000, 100_000),
    }


def test_a_part_of_the_cost_of_nodes_is_in_the_price_of_an_arc_with_a_limit() -> None:
    """What a further pod would pay on the node, which is half full then."""
    used = web("runs", nodeName="a", status=RUNNING)
    costs = {"cost": {"of": "Utilisation"}}
    drawing = {
        "aggregators": [{"name": "Q", "arcs": [{"to": "Nodes", **costs}]}],
        "arcs": [
            {"from": ALL, "to": "a", "minimum": 1, "maximum": 9, **costs},
            {"from": {"podSelector": {"matchLabels": {"app": "nobody"}}}, "to": "Q"},
        ],
    }
    flow = drawn_by(drawing, node("a"), used, web("w"))
    prices = {(arc.tail, arc.head): arc.price for arc in flow.arcs}
    assert prices["pods", "a"] == 500
    assert prices["Q", "a"] == 500


def test_parts_of_the_cost_of_nodes_that_differ_by_the_pod_are_a_range() -> None:
    """Taints that one pod tolerates and the other does not; what a cost model says has no price, and a note says so."""
    tainted = node("a", taints=[{"key": "k", "value": "v", "effect": "PreferNoSchedule"}])
    tolerates = web("w1", tolerations=[{"key": "k", "operator": "Exists"}])

    def priced_by(part: str) -> PolicyFlow:
        drawing = {"arcs": [{"from": ALL, "to": "Nodes", "cost": {"of": part}}]}
        return drawn_by(drawing, tainted, node("b"), web("w0"), tolerates, nodes=True)

    prices = {arc.head: (arc.price, arc.highest_price) for arc in priced_by("Taints").arcs}
    assert prices == {"a": (0, 3000), "b": (0, 0)}
    by_model = priced_by("Model")
    assert [arc.price for arc in by_model.arcs] == [None, None]
    assert by_model.notes == [
        "the cost model says what pods pay beside an arc's own cost: such arcs have no price here"
    ]


def test_an_aggregator_with_the_name_of_a_node_is_no_node() -> None:
    drawing = {"aggregators": [{"name": "a", "arcs": [{"to": "Nodes"}]}], "arcs": [{"from": ALL, "to": "a"}]}
    flow = drawn_by(drawing, node("a"), web("w0"))
    assert [(arc.tail, arc.head, arc.to_nodes) for arc in flow.arcs] == [("pods", "a", False), ("a", "a", True)]
    assert len({arc.start for arc in flow.arcs} | {arc.end for arc in flow.arcs}) == 3


def test_limits_of_constraints_are_arcs_to_their_domains() -> None:
    """They count running pods; nodes are grouped by the constraint's label, and each node is by itself for a host."""
    match = {"matchLabels": {"app": "web"}}
    conflict = {"pods": match, "topologyKey": "example.com/rack", "maxPerDomain": 2}
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "selects": {"podSelector": {}},
            "constraints": [
                {"name": "racks", "conflict": conflict},
                {"name": "each", "global": {"pods": match, "nodes": {}}},
            ],
        },
    }
    nodes = [node("a"), node("b"), node("c")]
    for each, rack in zip(nodes, ("r0", "r0", None), strict=True):
        each["metadata"]["labels"] |= {"example.com/rack": rack} if rack else {}
    runs = web("runs", nodeName="a", status=RUNNING)
    scenario = scenario_of([policy, *nodes, runs, web("w0"), web("w1")])
    (flow,) = answer_network(scenario, NetworkQuery("p"), AnswerContext(NOW, MODELS)).policies
    limits = {(arc.tail, arc.head): (arc.flow, arc.maximum, arc.state, arc.full) for arc in flow.arcs if arc.maximum}
    assert limits == {
        ("constraint racks: pods app=web", "rack r0"): (2, 2, "full", 1),
        ("constraint each: pods app=web", "3 nodes"): (2, 3, "", 2),
    }
    assert {arc.tail for arc in flow.arcs if arc.to_nodes and arc.maximum is None} == {"rack r0", "no rack"}
    assert flow.notes == ["rows that begin at a constraint count its pods beside the other rows, those that run too"]

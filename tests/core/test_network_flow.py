"""The flow in networks of cost models in Python, and what an asker may see of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from support.cli import node, pod
from support.scenario_state import scenario_of

from flowcore.costs import MODELS
from flowcore.costs.network_model import NetworkCostModel, NetworkView, arc_to, from_pods
from flowcore.model.networks import NODES, Aggregator, NetworkSpec
from flowcore.questions.scenario.context import AnswerContext
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
    """A network that is solved as a whole: of two units one is a pod."""

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

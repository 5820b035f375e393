"""The flow in networks of cost models in Python, and what an asker may see of it."""

from __future__ import annotations

from typing import Any

import msgspec
from support.cli import node, pod
from support.scenario_state import scenario_of

from flowcore.costs import MODELS
from flowcore.costs.network_model import Arc, Network, NetworkCostModel, NetworkView
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.network_flow import NetworkQuery, PolicyFlow, answer_network

NOW = 1_800_000_000.0
RUNNING = {"phase": "Running"}


class Budget(NetworkCostModel):
    """At most three pods, those that run among them."""

    name = "Budget"

    def network(self, view: NetworkView) -> Network:
        """All pods to the budget, and from there to the nodes."""
        starts = (*view.pods, *view.placed({"app": "web"}))
        to_nodes = [Arc("all", each, cost=7) for each in view.nodes]
        return Network.of([*(Arc(start, "budget") for start in starts), Arc("budget", "all", maximum=3), *to_nodes])


class OnlyWaiting(Budget):
    """It knows nothing of pods that have a node."""

    name = "OnlyWaiting"

    def network(self, view: NetworkView) -> Network:
        """Waiting pods to the nodes."""
        return Network.of(Arc(pods, each) for pods in view.pods for each in view.nodes)


class Broken(Budget):
    """It raises."""

    name = "Broken"

    def network(self, view: NetworkView) -> Network:
        """No network."""
        raise LookupError(view.policy)


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
    models = {**MODELS, "Budget": Budget(), "OnlyWaiting": OnlyWaiting(), "Broken": Broken()}
    scenario = scenario_of([node("a"), node("b"), policy, runs, *(web(f"w{number}") for number in range(4))])
    drawing = scenario.policies["web"]
    cost = msgspec.structs.replace(drawing.cost, model=model)
    scenario.policies["web"] = msgspec.structs.replace(drawing, cost=cost)
    (flow,) = answer_network(scenario, NetworkQuery("web"), AnswerContext(NOW, models)).policies
    return flow


def test_a_cost_model_that_counts_placed_pods_has_their_flow() -> None:
    flow = flow_by("Budget")
    assert [(arc.tail, arc.head, arc.flow, arc.state) for arc in flow.arcs] == [
        ("pods app=web", "budget", 3, ""),
        ("budget", "all", 3, "full"),
        ("all", "2 nodes", 3, ""),
        ("pods app=web", "Unscheduled", 2, ""),
    ]
    assert (flow.drawn, flow.placed, flow.left, flow.notes) == (True, 2, 2, [])


def test_a_cost_model_without_arcs_for_placed_pods_has_the_flow_of_those_that_wait() -> None:
    flow = flow_by("OnlyWaiting")
    assert [(arc.tail, arc.head, arc.flow) for arc in flow.arcs] == [("pods app=web", "2 nodes", 4)]


def test_a_cost_model_that_raises_is_a_note() -> None:
    (note,) = flow_by("Broken").notes
    assert note == "the network of cost model Broken is refused: its method network raised LookupError('web')"


def test_workloads_of_hidden_namespaces_have_no_names() -> None:
    secret = pod("s", metadata={"name": "s", "namespace": "secret", "uid": "s"}, schedulerName="thalweg")
    scenario = scenario_of([node("a"), web("w"), secret])
    context = AnswerContext(NOW, sees=lambda namespace: namespace != "secret")
    (flow,) = answer_network(scenario, NetworkQuery(), context).policies
    assert {arc.tail for arc in flow.arcs} == {"cluster", "pod/default/w", "pods of other namespaces"}

"""No sentence of an answer names a pod, a gang or a node that its asker may not read."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of

from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.alternatives.headroom import HeadroomQuery, answer_headroom
from flowcore.questions.scenario.alternatives.what_if import WhatIfQuery, answer_what_if
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical.changes import AddNodes, Cordon
from flowcore.questions.scenario.plan_listing import PlanQuery, answer_plan
from flowcore.questions.scenario.redaction import Redaction

ASKER = AnswerContext(NOW, sees=lambda namespace: namespace != "red")


def cluster() -> Scenario:
    """A node, and a pod of another namespace that asks about namespaces which are missing: the plan is uncertain."""
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "x"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    other = manifest_pod("other", node="a", namespace="red")
    other["spec"] |= {"affinity": affinity}
    return scenario_of([manifest_node("a", "z"), other, manifest_pod("own", cpu="3"), manifest_pod("two", cpu="3")])


@pytest.mark.parametrize(
    ("answer", "query"),
    [
        (answer_plan, PlanQuery()),
        (answer_what_if, WhatIfQuery([Cordon("a"), AddNodes(1, "a")])),
        (answer_headroom, HeadroomQuery(like="default/own")),
    ],
)
def test_no_answer_names_a_hidden_pod(answer: Callable[..., Any], query: Any) -> None:
    """What is uncertain is said all the same."""
    everything = msgspec.json.encode(answer(cluster(), query, AnswerContext(NOW))).decode()
    assert "Pod red/other: affinity rules" in everything
    words = msgspec.json.encode(answer(cluster(), query, ASKER)).decode()
    assert "affinity rules" in words
    assert "red/" not in words


def test_names_in_sentences() -> None:
    """Pods, other objects of a hidden namespace, and nodes; what only looks like a name stays."""
    scenario = cluster()
    text = 'Room on a is held for "red/gang-0", not red/other: 1/2 nodes, example.com/gpu, default/own.'
    assert Redaction(scenario, AnswerContext(NOW))(text) == text
    assert Redaction(scenario, ASKER)(text) == (
        'Room on a is held for "(of another namespace)", not a pod of another namespace: 1/2 nodes, example.com/gpu, '
        "default/own."
    )
    assert Redaction(scenario, AnswerContext(NOW, nodes=False))("On a, 1/2 nodes.") == "On a node, 1/2 nodes."

"""What a caller may not read is answered as what is not there, whatever names a namespace or a key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.scenario_state import NOW, manifest_node, manifest_pod, scenario_of
from thalweg_view.operations import OPERATIONS
from thalweg_view.rounds import RoundHistory
from thalweg_view.view_data import SourceInfo, ViewData

from flowcore.model.errors import ModelError
from flowcore.questions.scenario import plan_scenario
from flowcore.questions.scenario.context import AnswerContext

ALL = AnswerContext(NOW)
#: Reads the pods of one namespace, and nodes, policies and queues.
OTHER = AnswerContext(NOW, sees=lambda namespace: namespace == "theirs")


def pod_of(namespace: str, name: str) -> dict[str, Any]:
    """A pod that a change puts."""
    return {**manifest_pod(name, cpu="3"), "metadata": {"name": name, "namespace": namespace, "uid": "new"}}


#: Operation and query, for a namespace.
QUESTIONS: dict[str, tuple[str, Any]] = {
    "status": ("status", lambda namespace: {"namespace": namespace}),
    "status with pods": ("status", lambda namespace: {"namespace": namespace, "pods": True}),
    "plan": ("plan", lambda namespace: {"namespace": namespace}),
    "pending": ("pending", lambda namespace: {"query": f"{namespace}/"}),
    "a pod that runs": ("pods", lambda namespace: {"namespace": namespace, "name": "runs"}),
    "a pod that waits": ("pods", lambda namespace: {"namespace": namespace, "name": "waits"}),
    "why a pod": ("why", lambda namespace: {"target": f"{namespace}/waits"}),
    "why a workload": ("why", lambda namespace: {"target": f"replicaset/{namespace}/of-waits"}),
    "headroom like a pod": ("headroom", lambda namespace: {"like": f"{namespace}/runs"}),
    "headroom by requests": ("headroom", lambda namespace: {"requests": {"cpu": "1"}, "namespace": namespace}),
    "what if pods leave": (
        "what-if",
        lambda namespace: {"changes": [{"kind": "EvictPods", "pods": [f"{namespace}/runs"]}]},
    ),
    "what if a pod moves": (
        "what-if",
        lambda namespace: {"changes": [{"kind": "MovePod", "pod": f"{namespace}/runs", "node": "n1"}]},
    ),
    "what if a pod is put": (
        "what-if",
        lambda namespace: {"changes": [{"kind": "PutObjects", "objects": [pod_of(namespace, "runs")]}]},
    ),
    "what if a namespace is put": (
        "what-if",
        lambda namespace: {
            "changes": [{"kind": "PutObjects", "objects": [{"kind": "Namespace", "metadata": {"name": namespace}}]}]
        },
    ),
}


@pytest.fixture(scope="module")
def data() -> ViewData:
    """A namespace that has a queue, a rule that keeps pods apart, and pods that run, that wait and that leave."""
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
            ]
        }
    }
    of_secret = {"namespaceSelector": {"matchLabels": {"of": "secret"}}}
    spec = {"selects": of_secret, "limit": {"cpu": "3"}}
    runs, waits = manifest_pod("runs", "n0", "2"), manifest_pod("waits", cpu="9")
    large = manifest_pod("large", cpu="4")
    runs["spec"]["affinity"] = apart
    large["spec"]["priority"] = 100
    scenario = scenario_of([
        *(manifest_node(name, "z") for name in ("n0", "n1")),
        {"kind": "Namespace", "metadata": {"name": "secret", "labels": {"of": "secret"}}},
        {"kind": "Namespace", "metadata": {"name": "theirs"}},
        {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowQueue", "metadata": {"name": "q"}, "spec": spec},
        *({**each, "metadata": {**each["metadata"], "namespace": "secret"}} for each in (runs, waits, large)),
    ])  # fmt: skip
    view = ViewData(scenario, RoundHistory(), SourceInfo("dump", "now.json", "1"), 7)
    view.rounds.put(plan_scenario(scenario, NOW).document(seconds=0.5))
    return view


def answer(data: ViewData, question: str, namespace: str, context: AnswerContext) -> bytes:
    """What is told, with the namespace's name taken out of it."""
    name, query_of = QUESTIONS[question]
    operation = OPERATIONS[name]
    try:
        told = operation.answer(data, msgspec.convert(query_of(namespace), operation.query), context)
    except ModelError as error:
        return f"{type(error).__name__}: {error}".replace(namespace, "NAMESPACE").encode()
    return msgspec.json.encode(told).replace(namespace.encode(), b"NAMESPACE")


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_hidden_namespace_is_as_one_that_is_not_there(data: ViewData, question: str) -> None:
    """Neither numbers nor errors tell them apart; to who may read it they do."""
    assert answer(data, question, "secret", OTHER) == answer(data, question, "absent", OTHER)
    seen, absent = (answer(data, question, namespace, ALL) for namespace in ("secret", "absent"))
    assert seen != absent

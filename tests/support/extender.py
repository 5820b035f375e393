"""The extender's server on loopback, with a guide that a test sets, and kube-scheduler's requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from thalweg_extender import Certificates, ExtenderLimits, FilterOutcome, PlanView, listening

from flowcore.model.advice import Advice, ExtenderPod

Manifest = dict[str, Any]

#: As usual, but that refusals and answers about unknown pods come at once.
UNPACED_LIMITS = ExtenderLimits(unhelpful_interval=0)


class StubPlanView:
    """Says what it was told to say, or does what it was told to do, and keeps what it was asked and told."""

    def __init__(self, advice: Advice | str | Callable[[ExtenderPod, Sequence[str]], Advice]) -> None:
        self.advice = advice
        self.asked: list[tuple[ExtenderPod, list[str]]] = []
        self.answers: list[tuple[str, FilterOutcome, list[str]]] = []
        #: What happens before filter's advice.
        self.meanwhile: Callable[[], object] = lambda: None

    def unavailable(self) -> str:
        return self.advice if isinstance(self.advice, str) else ""

    def planned_at_once(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> bool:
        return True

    async def until_planned(self, _extender_pod: ExtenderPod, _nodes: Sequence[str]) -> None:
        self.meanwhile()

    def advise(self, extender_pod: ExtenderPod, node_names: Sequence[str]) -> Advice:
        self.asked.append((extender_pod, list(node_names)))
        assert not isinstance(self.advice, str)
        return self.advice(extender_pod, node_names) if callable(self.advice) else self.advice

    def answered(
        self, extender_pod: ExtenderPod, _advice: Advice, outcome: FilterOutcome, passed: Sequence[str]
    ) -> None:
        self.answers.append((extender_pod.key, outcome, list(passed)))


@asynccontextmanager
async def served(
    guide: PlanView,
    *,
    certificates: Certificates | None = None,
    limits: ExtenderLimits = UNPACED_LIMITS,
    **options: Any,
) -> AsyncIterator[str]:
    """The address under which the verbs are, as kube-scheduler's ``urlPrefix`` has it."""
    scheme = "http" if certificates is None else "https"
    async with listening("127.0.0.1", 0, guide, certificates=certificates, limits=limits, **options) as port:
        yield f"{scheme}://127.0.0.1:{port}/extender"


def to_go(value: Any) -> bytes:
    """JSON as Go's encoder writes it: no blanks, <, > and & escaped."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text.encode()


def pod(name: str = "web-0", **status: Any) -> Manifest:
    """A pod as kube-scheduler marshals it, fields that scheduling does not read included."""
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-of-{name}",
            "resourceVersion": "4711",
            "creationTimestamp": "2026-03-01T10:00:00Z",
            "labels": {"tier": "front", "app": "web"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}],
        },
        "spec": {
            "containers": [{"name": "main", "image": "example.invalid/web", "resources": {"requests": {"cpu": "1"}}}],
            "schedulerName": "steered",
            "tolerations": [{"key": "a<b&c>", "operator": "Exists"}],
        },
        "status": {"phase": "Pending", "qosClass": "Burstable", **status},
    }


def filter_request(names: Sequence[str] | None, of: Manifest | None = None, nodes: Manifest | None = None) -> bytes:
    """ExtenderArgs, for filter and prioritize."""
    return to_go({"Pod": of or pod(), "Nodes": nodes, "NodeNames": names})


def preempt_request(candidates: Manifest | None, of: Manifest | None = None, whole: Manifest | None = None) -> bytes:
    """ExtenderPreemptionArgs."""
    return to_go({"Pod": of or pod(), "NodeNameToVictims": whole, "NodeNameToMetaVictims": candidates})

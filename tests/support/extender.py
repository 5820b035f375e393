"""The extender's server on loopback, with a guide that a test sets, and kube-scheduler's requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from thalweg_extender import Certificates, Limits, Outcome, listening

from flowcore.model.guidance import Asked, Guidance

Manifest = dict[str, Any]

#: As usual, but that refusals and answers about unknown pods come at once.
QUICK = Limits(pace=0)


class SetGuide:
    """Says what it was told to say, or does what it was told to do, and keeps what it was asked and told."""

    def __init__(self, says: Guidance | str | Callable[[Asked, Sequence[str]], Guidance | str]) -> None:
        self.says = says
        self.asked: list[tuple[Asked, list[str]]] = []
        self.answers: list[tuple[str, Outcome, list[str]]] = []

    def guidance(self, asked: Asked, names: Sequence[str]) -> Guidance | str:
        self.asked.append((asked, list(names)))
        return self.says(asked, names) if callable(self.says) else self.says

    def answered(self, asked: Asked, outcome: Outcome, passed: Sequence[str]) -> None:
        self.answers.append((asked.key, outcome, list(passed)))


@asynccontextmanager
async def served(
    guide: SetGuide, *, certificates: Certificates | None = None, limits: Limits = QUICK, **options: Any
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


def asks(names: Sequence[str] | None, of: Manifest | None = None, nodes: Manifest | None = None) -> bytes:
    """ExtenderArgs, for filter and prioritize."""
    return to_go({"Pod": of or pod(), "Nodes": nodes, "NodeNames": names})


def preempts(candidates: Manifest | None, of: Manifest | None = None, whole: Manifest | None = None) -> bytes:
    """ExtenderPreemptionArgs."""
    return to_go({"Pod": of or pod(), "NodeNameToVictims": whole, "NodeNameToMetaVictims": candidates})

"""Metrics of waiting pods: how many, and for how long, by the code of their reason."""

import re

import pytest
from support.repository import ROOT
from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.waiting_pods import WaitingMetrics
from thalweg_operator.reservations.waiting_codes import (
    ALL_CODES,
    GATE_OPENING,
    GATED,
    INVALID,
    TERMINATING,
    UNSUPPORTED,
    blocked_code,
)

from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import ClaimingPod, PodClaim
from flowcore.rules.filters.registry import IN_ORDER

#: A claim of it is still to be made.
AWAITING = PodClass(devices=ClaimingPod("ns", "p", "u", (PodClaim("gpu", template="t"),)))


class Case:
    def __init__(self) -> None:
        self.now, self.metrics = 100.0, Metrics()
        self.waiting = WaitingMetrics(self.metrics, lambda: self.now)

    def values(self, name: str) -> dict[str, float]:
        """Values other than zero, by code."""
        samples = (
            sample
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == f"thalweg_{name}"
        )
        return {sample.labels["reason"]: sample.value for sample in samples if sample.value}


def pod(name: str, **changes: object) -> Pod:
    return Pod("ns", name, name, **{"pod_class": PodClass(), **changes})  # type: ignore[arg-type]


def test_every_code_has_a_series_from_the_start() -> None:
    """A query for a sum has an answer before any pod waits."""
    assert Case().metrics.registry.get_sample_value("thalweg_waiting_pods", {"reason": "NodeAffinity"}) == 0.0
    text = {sample.labels["reason"] for family in Case().metrics.registry.collect() for sample in family.samples
            if sample.name == "thalweg_longest_wait_seconds"}  # fmt: skip
    assert text == ALL_CODES


def test_how_many_and_how_long() -> None:
    """A pod's time counts since it has its code: another code, or another pod of its name, begins anew."""
    case = Case()
    case.waiting.round_ended([(pod("a"), "NodeAffinity"), (pod("b"), "NodeAffinity"), (pod("c"), "NodePorts")])
    assert case.values("waiting_pods") == {"NodeAffinity": 2, "NodePorts": 1}
    case.now += 60
    case.waiting.round_ended([(pod("a"), "NodePorts"), (pod("b"), "NodeAffinity"), (pod("d"), "NodePorts")])
    assert case.values("waiting_pods") == {"NodeAffinity": 1, "NodePorts": 2}
    case.now += 5
    assert case.values("longest_wait_seconds") == {"NodeAffinity": 65, "NodePorts": 5}
    case.waiting.round_ended([])
    assert case.values("waiting_pods") == case.values("longest_wait_seconds") == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"deleting": True, "blocked_reason": "it is being deleted"}, TERMINATING),
        ({"gates": ("example.com/gate",), "blocked_reason": "its scheduling gates are closed"}, GATED),
        ({"blocked_reason": "it cannot be read: ..."}, INVALID),
        ({"unsupported_reason": "its volumes: ..."}, UNSUPPORTED),
        ({"gated": True}, GATE_OPENING),
        ({"pod_class": AWAITING}, "DynamicResources"),
        ({"pod_class": AWAITING, "unsupported_reason": "its claims: ..."}, UNSUPPORTED),
    ],
)
def test_codes_of_pods_that_no_round_may_plan(changes: dict[str, object], code: str) -> None:
    """Each reason why a round must not plan a pod has a code."""
    assert blocked_code(pod("p", **changes)) == code


def test_codes_are_documented() -> None:
    """The page explains every code that is no filter's name, and none that does not exist."""
    page = (ROOT / "docs" / "reference" / "reasons.md").read_text()
    section = page.partition("## Codes")[2].partition("\n## ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert explained == ALL_CODES - {each.name for each in IN_ORDER}

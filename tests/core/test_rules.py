"""Rules between pods, as they are read."""

from typing import Any

from support.draw import Manifest
from support.verdicts import read_pods

from flowcore.model.selectors import LabelSelector, Requirement

NEAR_WEB = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
UNREADABLE = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}


def manifest(name: str, *, metadata: Manifest | None = None, status: Manifest | None = None, **spec: Any) -> Manifest:
    own = {"name": name, "namespace": "shop", "labels": {"app": "web"}, **(metadata or {})}
    return {"metadata": own, "spec": {"containers": [], **spec}, "status": status or {}}


def affinity(side: str, *, required: list[Manifest] | None = None, preferred: list[Manifest] | None = None) -> Manifest:
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": required or [],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": term} for term in preferred or []
        ],
    }
    return {"affinity": {side: terms}}


def test_pods_without_rules_carry_none() -> None:
    """Preferences and soft spread are no rules."""
    soft = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]
    pods = read_pods(
        [
            manifest("plain"),
            manifest("wish", **affinity("podAffinity", preferred=[NEAR_WEB])),
            manifest("soft", topologySpreadConstraints=soft),
        ]
    )
    assert [(pod.rules, pod.blocked) for pod in pods] == [(None, "")] * 3


def test_pods_with_the_same_rules_share_them() -> None:
    """What a thousand replicas demand is kept once."""
    first, second = read_pods([manifest(name, **affinity("podAntiAffinity", required=[NEAR_WEB])) for name in "ab"])
    assert first.rules is not None
    assert first.rules is second.rules
    assert first.blocked.startswith("spec.affinity.podAntiAffinity: ")


def test_a_preference_that_cannot_be_parsed_blocks_the_pod() -> None:
    """kube-scheduler refuses such a pod altogether; its terms of the other side stay what they are."""
    spec = {"affinity": {**affinity("podAffinity", preferred=[UNREADABLE])["affinity"],
                         **affinity("podAntiAffinity", required=[NEAR_WEB])["affinity"]}}  # fmt: skip
    (pod,) = read_pods([manifest("p", **affinity("podAffinity", preferred=[UNREADABLE]))])
    assert pod.blocked == "spec.affinity.podAffinity: a selector in it cannot be parsed"
    (both,) = read_pods([manifest("q", **spec)])
    assert both.rules is not None
    assert both.rules.unreadable_affinity == "spec.affinity.podAffinity"
    assert len(both.rules.anti_affinity) == 1


def test_match_label_keys_become_part_of_the_selector() -> None:
    """With the pod's own values; keys that it does not have are passed over."""
    own = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    (pod,) = read_pods([manifest("p", topologySpreadConstraints=[{**own, "matchLabelKeys": ["app", "tier"]}])])
    assert pod.rules is not None
    assert pod.rules.spread[0].selector == LabelSelector((Requirement("app", "In", ("web",)),))

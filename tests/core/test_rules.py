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
    """So do those whose preferences weigh nothing."""
    idle = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "podAffinityTerm": NEAR_WEB}]}
    pods = read_pods([manifest("plain"), manifest("wish", affinity={"podAffinity": idle})])
    assert [(pod.constraints, pod.blocked_reason) for pod in pods] == [(None, "")] * 2


def test_preferences_do_not_keep_a_pod_waiting() -> None:
    """They are read, with anti-affinity below zero, and the pod may be placed."""
    soft = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
    wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": NEAR_WEB}]}
    odd = {**soft, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}
    near, far, spread = read_pods(
        [
            manifest("near", affinity={"podAffinity": wish}),
            manifest("far", affinity={"podAntiAffinity": wish}),
            manifest("spread", topologySpreadConstraints=[soft, odd]),
        ]
    )
    assert [pod.blocked_reason for pod in (near, far, spread)] == [""] * 3
    assert near.constraints is not None
    assert far.constraints is not None
    assert spread.constraints is not None
    assert [each.weight for each in near.constraints.preferred + far.constraints.preferred] == [7, -7]
    assert near.constraints.preferred[0].term == far.constraints.preferred[0].term
    assert [(each.topology_key, each.max_skew) for each in spread.constraints.soft_spread] == [("zone", 2)]
    assert not near.constraints.affinity + far.constraints.anti_affinity
    assert not spread.constraints.spread


def test_pods_with_the_same_rules_share_them() -> None:
    """What a thousand replicas demand is kept once."""
    first, second = read_pods([manifest(name, **affinity("podAntiAffinity", required=[NEAR_WEB])) for name in "ab"])
    assert first.constraints is not None
    assert first.constraints is second.constraints
    assert first.blocked_reason == ""


def test_a_preference_that_cannot_be_parsed_blocks_the_pod() -> None:
    """kube-scheduler refuses such a pod altogether; its terms of the other side stay what they are."""
    spec = {"affinity": {**affinity("podAffinity", preferred=[UNREADABLE])["affinity"],
                         **affinity("podAntiAffinity", required=[NEAR_WEB])["affinity"]}}  # fmt: skip
    (pod,) = read_pods([manifest("p", **affinity("podAffinity", preferred=[UNREADABLE]))])
    assert pod.blocked_reason == "spec.affinity.podAffinity: a selector in it cannot be parsed"
    (both,) = read_pods([manifest("q", **spec)])
    assert both.constraints is not None
    assert both.constraints.unreadable_affinity == "spec.affinity.podAffinity"
    assert len(both.constraints.anti_affinity) == 1


def test_match_label_keys_become_part_of_the_selector() -> None:
    """With the pod's own values; keys that it does not have are passed over."""
    own = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    (pod,) = read_pods([manifest("p", topologySpreadConstraints=[{**own, "matchLabelKeys": ["app", "tier"]}])])
    assert pod.constraints is not None
    assert pod.constraints.spread[0].selector == LabelSelector((Requirement("app", "In", ("web",)),))

"""Rules between pods, as they are read and as running pods are counted for them."""

from typing import Any

from support.draw import Manifest
from support.verdicts import read_pods

from flowcore.model.neighbours import Neighbours
from flowcore.model.nodes import Node
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.snapshot import NodeTable

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
    assert first.required_anti_affinity == first.rules.anti_affinity
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
    assert len(both.required_anti_affinity) == 1


def test_match_label_keys_become_part_of_the_selector() -> None:
    """With the pod's own values; keys that it does not have are passed over."""
    own = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    (pod,) = read_pods([manifest("p", topologySpreadConstraints=[{**own, "matchLabelKeys": ["app", "tier"]}])])
    assert pod.rules is not None
    assert pod.rules.spread[0].selector == LabelSelector((Requirement("app", "In", ("web",)),))


def test_neighbours_are_counted_by_kind_and_node() -> None:
    """Pods that have ended, that wait or run on an unknown node are no neighbours; those that leave are set apart."""
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    pods = read_pods(
        [
            manifest("a", nodeName="n1"),
            manifest("b", nodeName="n1"),
            manifest("c", nodeName="n0"),
            manifest("d", nodeName="n1", metadata=leaving),
            manifest("e", nodeName="n1", status={"phase": "Succeeded"}),
            manifest("f", nodeName="gone"),
            manifest("g"),
        ]
    )
    neighbours = Neighbours.of(pods, NodeTable.of([Node("n0"), Node("n1")]), {})
    found = [
        (kin.namespace, kin.leaving, dict(zip(kin.nodes.tolist(), kin.counts.tolist(), strict=True)))
        for kin in neighbours.kins
    ]
    assert found == [("shop", False, {1: 2, 0: 1}), ("shop", True, {1: 1})]

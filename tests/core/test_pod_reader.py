"""Pods that are read by what was read of others."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowcore.api import Interner, PodReader, WirePod, to_pod
from flowcore.model.data import DATA
from flowcore.model.numa import NUMA
from flowcore.model.policies import GATE, MARK

_TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
_SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-05T08:00:00Z"}
_ZONES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}


def _pinned(*nodes: str) -> dict[str, Any]:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def _container(cpu: str, image: str = "i") -> dict[str, Any]:
    return {"name": "main", "image": image, "resources": {"requests": {"cpu": cpu}}}


#: A path in a pod, and what it says there.
_Change = tuple[tuple[str, str], Any]
_CHANGES: list[_Change] = [
    (("metadata", "name"), "p2"),
    (("metadata", "uid"), "u2"),
    (("metadata", "namespace"), "other"),
    (("metadata", "labels"), {"app": "b"}),
    (("metadata", "labels"), {f"label-{i}": "x" * 60 for i in range(300)}),
    (("metadata", "annotations"), {NUMA: "single"}),
    (("metadata", "annotations"), {NUMA: "both"}),
    (("metadata", "annotations"), {DATA: "rubbish"}),
    (("metadata", "annotations"), {"gpu-fraction": "0.5"}),
    (("metadata", "annotations"), {"gpu-memory": "rubbish"}),
    (("metadata", "namespace"), "kai-resource-reservation"),
    (("metadata", "labels"), {"runai-gpu-group": "g"}),
    (("metadata", "annotations"), {DATA: '[{"image": "i", "size": "1Gi"}]'}),
    (("metadata", "ownerReferences"), [{"kind": "DaemonSet", "uid": "d", "controller": True}]),
    (("metadata", "ownerReferences"), [{"kind": "ReplicaSet", "uid": "r", "controller": True}]),
    (("spec", "nodeName"), "n1"),
    (("spec", "nodeName"), "n2"),
    (("spec", "nodeName"), 'n"2'),
    (("spec", "nodeSelector"), {"hostname": "p", "nodeName": "n1"}),
    (("spec", "nodeSelector"), {"hostname": "p2", "nodeName": "n2"}),
    (("spec", "hostname"), "p"),
    (("spec", "hostname"), "p2"),
    (("spec", "containers"), [_container("2")]),
    (("spec", "containers"), [_container("rubbish")]),
    (("spec", "containers"), [_container("1", "j")]),
    (("spec", "priority"), 2_000_000_000),
    (("spec", "preemptionPolicy"), "Never"),
    (("spec", "schedulerName"), "thalweg"),
    (("spec", "schedulingGates"), [{"name": GATE}]),
    (("spec", "schedulingGates"), [{"name": "n1"}]),
    (("spec", "nodeSelector"), {"kubernetes.io/hostname": "n1"}),
    (("spec", "affinity"), _pinned("n1")),
    (("spec", "affinity"), _pinned("n2")),
    (("spec", "affinity"), _pinned("n1", "n2")),
    (("spec", "affinity"), {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _ZONES}}),
    (("spec", "affinity"), {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_TERM]}}),
    (
        ("spec", "topologySpreadConstraints"),
        [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"], **_TERM}],
    ),
    (("spec", "volumes"), [{"name": "kube-api-access-abcde", "projected": {}}]),
    (("spec", "volumes"), [{"name": "kube-api-access-fghij", "projected": {}}]),
    (("spec", "volumes"), [{"name": "kube-api-access-abcde", "emptyDir": {}}]),
    (("spec", "volumes"), [{"name": "kube-api-access-abcde", "ephemeral": {}}]),
    (("spec", "volumes"), [{"name": "v", "persistentVolumeClaim": {"claimName": "kube-api-access-abcde"}}]),
    (("spec", "resources"), {"requests": {"cpu": "3"}}),
    (("status", "qosClass"), "Guaranteed"),
    (("status", "phase"), "Succeeded"),
    (("status", "containerStatuses"), [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]),
    (("status", "containerStatuses"), [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]),
    (("status", "containerStatuses"), [{"name": "main", "allocatedResources": {"cpu": "4"}}]),
    (("status", "containerStatuses"), [{"name": "gone", "resources": {"requests": {"cpu": "4"}}}]),
    (("status", "resources"), {"requests": {"cpu": "4"}}),
    (("status", "conditions"), [_SCHEDULED]),
    (("status", "conditions"), [{**_SCHEDULED, "status": "False", "reason": "Unschedulable", "message": "m"}]),
    (("status", "conditions"), [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]),
    (("status", "conditions"), [{"type": "Ready", "status": "False"}, _SCHEDULED]),
]
_BASE: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": {"app": "a"}},
    "spec": {"nodeName": "n1", "containers": [_container("1")]},
    "status": {"phase": "Running", "qosClass": "Burstable"},
}


def _changed(changes: list[_Change]) -> bytes:
    manifest = copy.deepcopy(_BASE)
    for (part, field), value in changes:
        manifest[part][field] = value
    return json.dumps(manifest, separators=(",", ":")).encode()


_CHANGED = st.sampled_from(_CHANGES)


@given(st.lists(_CHANGED, max_size=3), st.lists(st.lists(_CHANGED, max_size=2), min_size=2, max_size=8))
def test_what_was_read_before_changes_no_pod(common: list[_Change], pods: list[list[_Change]]) -> None:
    """Whatever came before, each pod is read as it is read alone; the pods differ in one or two fields."""
    reader = PodReader(Interner())
    for raw in [_changed(common + own) for own in (*pods, *pods)]:
        assert reader(raw) == to_pod(msgspec.json.decode(raw, type=WirePod), Interner())


def test_pods_of_a_controller_share_what_is_read_of_their_spec() -> None:
    """Names of nodes, of DaemonSets' affinities, of token volumes and of hosts do not make another class."""
    daemon = (("metadata", "ownerReferences"), [{"kind": "DaemonSet", "uid": "d", "controller": True}])
    reader = PodReader(Interner())
    found = [
        reader(
            _changed(
                [
                    daemon,
                    (("metadata", "name"), f"p-{node}"),
                    (("spec", "nodeName"), node),
                    (("spec", "hostname"), f"p-{node}"),
                    (("spec", "affinity"), _pinned(node)),
                    (("spec", "volumes"), [{"name": f"kube-api-access-{node}ab", "projected": {}}]),
                ]
            )
        )
        for node in ("no1", "no2", "no3")
    ]
    assert len({id(pod.pod_class) for pod in found}) == 1
    assert len(reader._readings) == 1
    assert found[0].pod_class.required_affinity is None


def test_a_condition_may_be_written_with_escapes() -> None:
    """JSON has several ways to write a word: all of them count."""
    condition = {**_SCHEDULED, "status": "False", "reason": "Unschedulable", "message": "no room"}
    raw = _changed([(("status", "conditions"), [condition])]).replace(b'"False"', rb'"\u0046alse"')
    assert PodReader(Interner())(raw).unschedulable_message == "no room"


def test_a_pod_that_is_no_pod_is_refused() -> None:
    """A spec of the wrong shape is an error, also after many good ones."""
    reader = PodReader(Interner())
    reader(_changed([]))
    for field in ("containers", "nodeName"):
        with pytest.raises(msgspec.ValidationError, match=rf"spec\.{field}"):
            reader(_changed([(("spec", field), 3)]))


@pytest.mark.parametrize("cpu", ["100m", "2"])
def test_the_mark_makes_no_pod_another_kind(cpu: str) -> None:
    """It asks for nothing: pods with it and without it are of one class, in NUMA zones and for devices too."""
    read, intern = [], Interner()
    for mark in ({}, {MARK: "0"}):
        amounts = {"cpu": cpu, "memory": "1Gi", **mark}
        container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        spec = {"containers": [container], "schedulerName": "thalweg-steered"}
        status = {"qosClass": "Guaranteed"}
        wire = {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status}
        read.append(to_pod(msgspec.convert(wire, WirePod), intern))
    plain, marked = read
    assert marked.pod_class == plain.pod_class
    assert marked.signature == plain.signature
    assert marked == plain

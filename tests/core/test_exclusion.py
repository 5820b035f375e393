"""The fewest filters that exclude every node, and the fewest without which a node would take the pod."""

from dataclasses import replace
from itertools import combinations

import msgspec
import numpy as np
from hypothesis import assume, given, settings
from support.draw import Case, cases_for
from support.profiles import examples
from support.verdicts import snapshot_of

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.model.inter_pod_constraints import InterPodConstraints
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters import Verdicts, run_filters
from flowcore.rules.filters.registry import IN_ORDER
from flowcore.rules.reasons.exclusion import smallest_exclusion, way_out

ASPECTS = ("NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "InterPodAffinity")


def rejected_by(verdicts: Verdicts, name: str) -> np.ndarray:
    found = np.zeros(len(verdicts.table.nodes), dtype=np.bool_)
    for each, rejections in verdicts.by_filter:
        for rejection in rejections if each == name else ():
            found |= rejection.nodes
    return found


@given(cases_for((*ASPECTS, "PodTopologySpread", "VolumeZone", "VolumeBinding", "NodeDeclaredFeatures")))
@settings(max_examples=examples(40))
def test_no_smaller_set_of_filters_excludes_every_node(case: Case) -> None:
    """Nor another of that size that comes before it in kube-scheduler's order; and these do exclude every node."""
    snapshot = snapshot_of(case)
    for pod in snapshot.pending:
        verdicts = run_filters(pod.pod_class, snapshot, pod.signature)
        found = smallest_exclusion(verdicts)
        if verdicts.fits.any():
            assert not found.filters
            continue
        masks = {each.name: rejected_by(verdicts, each.name) for each in IN_ORDER}
        names = [name for name in dict(verdicts.by_filter) if masks[name].any()]
        excluding = next(
            chosen
            for size in range(1, len(names) + 1)
            for chosen in combinations(names, size)
            if np.logical_or.reduce([masks[name] for name in chosen]).all()
        )
        assert found.filters == excluding
        assert found.nodes == tuple(int(masks[name].sum()) for name in excluding)


@given(cases_for(ASPECTS))
@settings(max_examples=examples(60))
def test_without_what_is_named_the_pod_fits_and_without_less_it_does_not(case: Case) -> None:
    """By every filter again, for a pod and a cluster that lack what the named filters read."""
    snapshot = snapshot_of(case)
    named = [
        (pod.pod_class, pod.signature, out)
        for pod in snapshot.pending
        if (out := way_out(run_filters(pod.pod_class, snapshot, pod.signature))) is not None
    ]
    assume(named)
    for pod_class, signature, out in named:
        assert fits_without(out.filters, pod_class, signature, snapshot)[out.nodes].all()
        for left in out.filters:
            less = tuple(name for name in out.filters if name != left)
            assert not fits_without(less, pod_class, signature, snapshot).any(), (out.filters, less)


def fits_without(
    filters: tuple[str, ...], pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
) -> np.ndarray:
    """The nodes that take a pod once it and the cluster lack what these filters read."""
    for name in filters:
        pod_class, signature, snapshot = LACKING[name](pod_class, signature, snapshot)
    return run_filters(pod_class, snapshot, signature).fits


def without_cordons(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    nodes = [msgspec.structs.replace(each, unschedulable=False) for each in snapshot.table.nodes]
    return pod_class, signature, replace(snapshot, table=NodeTable.of(nodes))


def without_taints(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    nodes = [msgspec.structs.replace(each, taints=()) for each in snapshot.table.nodes]
    return pod_class, signature, replace(snapshot, table=NodeTable.of(nodes))


def without_affinity(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    free = msgspec.structs.replace(pod_class, node_selector=(), required_affinity=None)
    return free, signature, snapshot


def without_ports(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    return pod_class, signature, replace(snapshot, ports={})


def without_usage(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    """Room for whatever the pod asks for: it asks for nothing, and each node has a place for a pod."""
    room = np.maximum(snapshot.allocatable, 1)
    free = replace(snapshot, allocatable=room, used=np.zeros_like(snapshot.used))
    return msgspec.structs.replace(pod_class, requests=()), signature, free


def without_pod_rules(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> tuple:
    """Neither rules of the pod nor of those that run."""
    constraints = signature.constraints or InterPodConstraints()
    free = msgspec.structs.replace(constraints, affinity=(), anti_affinity=(), unreadable_affinity="")
    lone = msgspec.structs.replace(signature, constraints=free)
    return pod_class, lone, replace(snapshot, pod_index=PodIndex(snapshot.pod_index.namespaces))


LACKING = {
    "NodeUnschedulable": without_cordons,
    "TaintToleration": without_taints,
    "NodeAffinity": without_affinity,
    "NodePorts": without_ports,
    "NodeResourcesFit": without_usage,
    "InterPodAffinity": without_pod_rules,
}

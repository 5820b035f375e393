"""Our verdicts and kube-scheduler's on one case, and where they differ."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from support.draw import Case, Manifest
from support.kubernetes_rules import rules_in_force
from thalweg_controlplane import Oracle, OracleVerdict

from flowcore.api import (
    Interner,
    WireNamespace,
    WireNode,
    WirePod,
    to_labels,
    to_node,
    to_pod,
    to_storage_object,
)
from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.arrays.storage import Storage
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.kubernetes_version import KubernetesVersion
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import Labels
from flowcore.model.volumes import StorageObject
from flowcore.rules.filters import (
    inter_pod_affinity,
    pod_topology_spread,
    run_filters,
    volume_binding,
    volume_filters,
)

#: NodeAffinity's PreFilter words a rejection its own way; ours has only Filter's words.
_PREFILTER_WORDS = ("node(s) didn't satisfy plugin(s) [NodeAffinity]", "pod affinity terms conflict")
#: What follows is Go's account of why a selector cannot be parsed.
_UNREADABLE_WORDS = (
    inter_pod_affinity.REASON_UNREADABLE,
    pod_topology_spread.REASON_UNREADABLE,
    volume_binding.REASON_UNREADABLE,
)
#: Plural, as the oracle takes storage objects -> kind.
_KINDS = {
    "persistentVolumes": "PersistentVolume",
    "persistentVolumeClaims": "PersistentVolumeClaim",
    "storageClasses": "StorageClass",
    "csiNodes": "CSINode",
    "volumeAttachments": "VolumeAttachment",
    "csiDrivers": "CSIDriver",
    "csiStorageCapacities": "CSIStorageCapacity",
}
#: Pod -> node -> kube-scheduler's verdict.
Judged = Mapping[str, Mapping[str, OracleVerdict]]
_FIRST_FILTERS = ("NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", *volume_filters.NAMES)


def read_pods(manifests: Sequence[dict], version: KubernetesVersion | None = None) -> list[Pod]:
    """Pods from manifests, by the rules of a version; None: those in force."""
    intern, version = Interner(), version or rules_in_force()
    return [version.as_scheduled(to_pod(msgspec.convert(manifest, WirePod), intern)) for manifest in manifests]


def namespaces_of(case: Case) -> dict[str, Labels]:
    """The labels of each namespace."""
    wires = (msgspec.convert(manifest, WireNamespace) for manifest in case.namespaces)
    return {wire.metadata.name: to_labels(wire.metadata.labels) for wire in wires}


def snapshot_of(case: Case, *, now: float = 0.0, policy: str = BUILT_IN.name, place_blocked: bool = True) -> Snapshot:
    """The case as a round sees it.

    Args:
        place_blocked: keep pending pods that the engine would not place; filters judge them all the same.
    """
    table = NodeTable.of(to_node(msgspec.convert(manifest, WireNode), Interner()) for manifest in case.nodes)
    running = [pod for pod in read_pods(case.pods) if not pod.terminal]
    pending = tuple(
        PendingPod(
            key=pod.key,
            uid=pod.uid,
            # kube-scheduler is asked about pods that name their node, as if they waited.
            pod_class=msgspec.structs.replace(pod.pod_class, node_name=pod.node_name),
            policy=policy,
            created=pod.created,
            signature=pod.signature,
        )
        for pod in read_pods(case.pending)
        if place_blocked or not pod.skip_reason
    )
    return build_snapshot(
        generation=1,
        now=now,
        table=table,
        running=[(pod.node_name, pod.usage, pod.pod_class.host_ports) for pod in running],
        pending=pending,
        storage=storage_of(case, running),
        pod_index=PodIndex.of(((pod.node_name, pod.signature) for pod in running), namespaces_of(case)),
    )


def verdicts_from_cache(case: Case) -> list[Manifest]:
    """The pods that kube-scheduler counts.

    Its informers leave terminal pods out (pkg/scheduler/scheduler.go newPodInformer), its cache those on
    nodes that it does not know (backend/cache UpdateSnapshot).
    """
    known = {node["metadata"]["name"] for node in case.nodes}
    ended = ("Succeeded", "Failed")
    return [
        pod for pod in case.pods if pod["spec"]["nodeName"] in known and pod.get("status", {}).get("phase") not in ended
    ]


def storage_of(case: Case, running: Sequence[Pod] = ()) -> Storage:
    """The case's storage objects, and what its running pods have mounted."""
    return Storage.of(storage_objects(case), ((pod.node_name, pod.pod_class.volumes) for pod in running))


def storage_objects(case: Case) -> list[StorageObject]:
    """The case's storage objects, less what no filter reads."""
    read = (to_storage_object(_KINDS[kind], manifest) for kind, found in case.storage.items() for manifest in found)
    return [rules_in_force().as_stored(each) for each in read if each is not None]


def judged(oracle: Oracle, case: Case, only: str = "") -> Judged:
    """kube-scheduler's verdicts, by one plugin, or "" for the whole default profile."""
    plugins, known = [only] if only else [], verdicts_from_cache(case)
    return oracle.judge(case.nodes, known, case.pending, plugins, case.namespaces, case.storage)[only]


def differences(theirs: Judged, case: Case, only: str = "") -> tuple[list[str], Counter[str]]:
    """What differs, a line each, and how many verdicts were ``fits`` and ``rejected``.

    Args:
        theirs: kube-scheduler's verdicts.
        only: one plugin, judging for itself; "" for the whole default profile, where the filter that rejects
            first and its words must be the same too.
    """
    snapshot = snapshot_of(case)
    found, counts = [], Counter[str]()
    for pod in snapshot.pending:
        verdicts = run_filters(pod.pod_class, snapshot, pod.signature)
        for at, node in enumerate(snapshot.table.nodes):
            if only:
                parts = ([r.reason for r in found if r.nodes[at]] for name, found in verdicts.by_filter if name == only)
                rejected = next(filter(None, parts), [])
                ours = (not rejected, only if rejected else "", ", ".join(rejected))
            else:
                ours = (bool(verdicts.fits[at]), *verdicts.of_node(at))
            verdict = theirs[pod.key][node.name]
            counts["fits" if verdict.fits else "rejected"] += 1
            same_words = sorted(ours[2].split(", ")) == sorted(verdict.reason.split(", "))
            if verdict.reason in _PREFILTER_WORDS:
                same = not ours[0] and (ours[1] in _FIRST_FILTERS or ours[2].startswith(_UNREADABLE_WORDS))
            elif any(words in verdict.reason for words in _UNREADABLE_WORDS):
                same = not ours[0] and ours[2].startswith(_UNREADABLE_WORDS)
            else:
                same = ours[0] == verdict.fits and ours[1] == verdict.filter and same_words
            if not same:
                scheduler = (verdict.fits, verdict.filter, verdict.reason)
                found.append(f"{pod.key} on {node.name}: ours {ours}, kube-scheduler's {scheduler}")
    return found, counts


def assert_same(oracle: Oracle, case: Case, only: str = "") -> Counter[str]:
    """Fails with the case as tests/oracle/cases/ keeps it; returns the counts of ``differences``."""
    return assert_agrees(judged(oracle, case, only), case, only)


def assert_agrees(theirs: Judged, case: Case, only: str = "") -> Counter[str]:
    """The same with kube-scheduler's verdicts at hand."""
    found, counts = differences(theirs, case, only)
    if found:
        kept = json.dumps({"filter": only, **case.to_json()}, indent=1)
        raise AssertionError("\n".join([*found, "To keep it as a regression example in tests/oracle/cases/:", kept]))
    return counts

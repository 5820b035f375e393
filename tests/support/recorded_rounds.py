"""Requests of rounds for drawn crowds, as an operator sends them to its worker."""

from __future__ import annotations

from thalweg_operator.planning.worker.messages import PendingEntry, RoundRequest

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.changes import ClusterChanges, NodeReport
from flowcore.model.node_usage import NodeUsage
from flowcore.model.pod_index import PodSignature
from flowcore.model.policies import BUILT_IN
from flowcore.model.volumes import Claim, ClaimVolume, CsiNode, PersistentVolume, StorageClass

CLAIM, MOUNTED = Claim("default", "data", storage_class="late"), (ClaimVolume("default", "data"),)


def request_of(crowd: Snapshot, number: int = 1) -> RoundRequest:
    """A request with the whole crowd; after the first one, only with what changed."""
    classes: dict[object, int] = {}
    waiting = [
        PendingEntry(pod.key, classes.setdefault(pod.pod_class, len(classes)), 0, pod.created, 0)
        for pod in crowd.pending
    ]
    return RoundRequest(
        number=number,
        generation=7,
        now=1000.0,
        reset=number == 1,
        changes=ClusterChanges(
            nodes=list(crowd.table.nodes),
            usage=[NodeUsage(node.name, (), 1, 0, 0, (), MOUNTED) for node in crowd.table.nodes] if number == 1 else [],
            storage=[CLAIM, CsiNode("n0"), StorageClass("late")] if number == 1 else [PersistentVolume("v")],
            removed_storage=[] if number == 1 else [("CSINode", "", "n0")],
            namespaces={"default": ()},
            images=[("big:v1", 2**30)] if number == 1 else [],
            reports=[NodeReport(node.name, (0,), 7) for node in crowd.table.nodes] if number == 1 else [],
        ),
        policies=[BUILT_IN],
        classes=list(classes),  # type: ignore[arg-type]
        signatures=[PodSignature("default", ())],
        pending=waiting,
        budget=0.05,
    )

"""NodeResourceTopologyMatch: one NUMA zone must have room for what the pod needs in one.

Source: scheduler-plugins pkg/noderesourcetopology (filter.go). As there, nodes are asked whose kubelet refuses pods
otherwise (policy single-numa-node), by containers or by pods. Unlike there, a cpu counts only where it is a whole one
(the kubelet shares the others), and a resource that no zone of a node reports has no zone there.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.model.pods import PodClass
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAME = "NodeResourceTopologyMatch"
REASON = "node(s) had no single NUMA zone with room for the pod"
REASON_UNREPORTED = "node(s) didn't report their NUMA zones"


def reads(pod_class: PodClass) -> FilterInputs | None:
    """What the class needs of zones."""
    return None if pod_class.numa is None else FilterInputs(pod_class.numa)


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """Nodes where no zone has room, whatever zones the pods take that came since the last report."""
    needs, room = pod_class.numa, snapshot.numa
    if needs is None:
        return ()
    if room is None:
        nobody = np.full(len(snapshot.table.nodes), needs.everywhere, dtype=np.bool_)
        return (Rejection(REASON_UNREPORTED, nobody),)
    unreported = room.unreported & needs.everywhere
    return (
        Rejection(REASON_UNREPORTED, unreported),
        Rejection(REASON, (room.counts(needs) == 0) & ~unreported),
    )

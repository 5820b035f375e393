"""NodeResourcesFit: what a pod asks for must be free, exact fits included.

Source: kube-scheduler plugins/noderesources/fit.go (fitsRequest). A resource that the pod does not ask for never
rejects it, even where the node is overcommitted already; every pod takes one of ``pods``.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.pods import PodClass
from flowcore.model.resources import PODS
from flowcore.model.snapshot import Int64s, Snapshot

NAME = "NodeResourcesFit"
TOO_MANY_PODS = "Too many pods"


def insufficient(resource: str) -> str:
    """kube-scheduler's text for a resource that runs short."""
    return f"Insufficient {resource}"


def reads(pod_class: PodClass) -> Reads:
    """What the class asks for."""
    return Reads(pod_class.requests)


def rejections(pod_class: PodClass, snapshot: Snapshot) -> tuple[Rejection, ...]:
    """One rejection per resource that is asked for, whether it runs short anywhere or not: a node can be in several."""
    wanted = snapshot.vector(pod_class.requests)
    free = snapshot.free
    found = []
    order = [snapshot.resources.index(PODS), *(i for i, name in enumerate(snapshot.resources) if name != PODS)]
    for i in order:
        if wanted[i] > 0:
            name = snapshot.resources[i]
            found.append(Rejection(TOO_MANY_PODS if name == PODS else insufficient(name), free[:, i] < wanted[i]))
    # No node offers these, so they have no column.
    everywhere = np.ones(len(free), dtype=np.bool_)
    found.extend(Rejection(insufficient(name), everywhere) for name in not_offered(pod_class, snapshot))
    return tuple(found)


def not_offered(pod_class: PodClass, snapshot: Snapshot) -> list[str]:
    """Resources that the class asks for and no node offers."""
    return sorted(name for name, amount in pod_class.requests if amount > 0 and name not in snapshot.resources)


def counts(pod_class: PodClass, snapshot: Snapshot) -> Int64s:
    """int64[N]: how many pods of a class each node takes, alone."""
    if not_offered(pod_class, snapshot):
        return np.zeros(len(snapshot.table.nodes), dtype=np.int64)
    return count_fitting(snapshot.vector(pod_class.requests), snapshot.free)


def count_fitting(wanted: Int64s, free: Int64s) -> Int64s:
    """int64[N]: how many pods of this size each node takes, alone.

    Args:
        wanted: int64[R], with a positive entry for ``pods``.
        free: int64[N, R], may be negative.
    """
    fitting: Int64s = np.full(len(free), 2**31, dtype=np.int64)
    for column in np.nonzero(wanted > 0)[0].tolist():
        np.minimum(fitting, free[:, column] // wanted[column], out=fitting)
    return np.maximum(fitting, 0, out=fitting)

"""A snapshot in which extended resources that a DeviceClass backs keep no pod from nodes that do not offer them.

Such a node serves the resource by devices, and these decide: NodeResourcesFit leaves it to DynamicResources. Queues
count what pods request of the resource, as ever.

Source: kube-scheduler plugins/noderesources/fit.go (shouldDelegateResourceToDRA).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from flowcore.cluster.arrays.device_columns import DeviceColumns
from flowcore.cluster.arrays.snapshot import Bools, Snapshot

#: More than the devices of all pods of a node.
_PLENTY = 2**20


def with_extended_resources(snapshot: Snapshot, resources: Iterable[str]) -> Snapshot:
    """The snapshot with plenty of these resources on each node that does not offer them; new columns come last."""
    names = sorted(resources)
    if not names:
        return snapshot
    missing = [name for name in names if name not in snapshot.resources]
    nothing = np.zeros((len(snapshot.table.nodes), len(missing)), dtype=np.int64)
    all_names = (*snapshot.resources, *missing)
    allocatable = np.concatenate([snapshot.allocatable, nothing], axis=1)
    used = np.concatenate([snapshot.used, nothing], axis=1) if missing else snapshot.used
    served: dict[str, Bools] = {}
    for name in names:
        column = all_names.index(name)
        served[name] = allocatable[:, column] == 0
        allocatable[served[name], column] = used[served[name], column] + _PLENTY
    no_node = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    columns = DeviceColumns((), "", no_node, object(), served)
    return replace(snapshot, resources=all_names, allocatable=allocatable, used=used, columns=columns)


def offered_by_nodes(snapshot: Snapshot, resources: Iterable[str]) -> frozenset[str]:
    """Those of some resources that a node offers itself."""
    offered = (name for name in resources if name in snapshot.resources)
    return frozenset(name for name in offered if snapshot.allocatable[:, snapshot.resources.index(name)].any())

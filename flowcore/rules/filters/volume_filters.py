"""The filters on volumes together, in kube-scheduler's order.

Most pods have no volume that a filter reads; nothing is asked then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable
from flowcore.cluster.arrays.storage import Storage
from flowcore.model.volumes import Volumes
from flowcore.rules.filters import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from flowcore.rules.filters.rejection import FilterInputs, Rejection

NAMES = (volume_restrictions.NAME, node_volume_limits.NAME, volume_binding.NAME, volume_zone.NAME)
_PREFILTERS: Mapping[str, Callable[[Volumes, Storage], str]] = {
    plugin.NAME: plugin.prefilter_reason for plugin in (volume_restrictions, volume_binding, volume_zone)
}
_REJECTIONS: Mapping[str, Callable[[Volumes, Storage, NodeTable], tuple[Rejection, ...]]] = {
    plugin.NAME: plugin.rejections for plugin in (volume_restrictions, node_volume_limits, volume_binding, volume_zone)
}


def prefilter_rejections(
    volumes: Volumes, storage: Storage, table: NodeTable
) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """Reasons that end a pod's cycle in PreFilter, before any node is filtered: every node is rejected."""
    if not volumes:
        return ()
    rejected = []
    for name, ask in _PREFILTERS.items():
        reason = ask(volumes, storage)
        if reason:
            rejected.append((name, (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)))
    return tuple(rejected)


def reads(volumes: Volumes) -> FilterInputs | None:
    """The class's volumes."""
    return FilterInputs(volumes) if volumes else None


def rejections(name: str, volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """Nodes that the filter of that name rejects, unless it rejected every node in PreFilter."""
    if name in _PREFILTERS and _PREFILTERS[name](volumes, storage):
        return ()
    return _REJECTIONS[name](volumes, storage, table)

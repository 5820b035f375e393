"""The filters on volumes together, in kube-scheduler's order.

Most pods have no volume that a filter reads; nothing is asked then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flowcore.filters import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from flowcore.filters.rejection import Reads, Rejection
from flowcore.model.snapshot import NodeTable
from flowcore.model.storage import Storage
from flowcore.model.volumes import Volumes

NAMES = (volume_restrictions.NAME, node_volume_limits.NAME, volume_binding.NAME, volume_zone.NAME)
_OUTRIGHT: Mapping[str, Callable[[Volumes, Storage], str]] = {
    plugin.NAME: plugin.outright for plugin in (volume_restrictions, volume_binding, volume_zone)
}
_REJECTIONS: Mapping[str, Callable[[Volumes, Storage, NodeTable], tuple[Rejection, ...]]] = {
    plugin.NAME: plugin.rejections for plugin in (volume_restrictions, node_volume_limits, volume_binding, volume_zone)
}


def outright(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What ends a pod's cycle in PreFilter, before any node is looked at: every node is rejected."""
    if not volumes:
        return ()
    found = []
    for name, ask in _OUTRIGHT.items():
        reason = ask(volumes, storage)
        if reason:
            found.append((name, (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)))
    return tuple(found)


def reads(volumes: Volumes) -> Reads | None:
    """The class's volumes."""
    return Reads(volumes) if volumes else None


def rejections(name: str, volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[Rejection, ...]:
    """What the filter of that name says of each node, if it has not said everything already."""
    if name in _OUTRIGHT and _OUTRIGHT[name](volumes, storage):
        return ()
    return _REJECTIONS[name](volumes, storage, table)

"""The filters on volumes together, in kube-scheduler's order.

Most pods have no volume that a filter reads; nothing is asked then.
"""

from __future__ import annotations

import numpy as np

from flowcore.filters import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from flowcore.filters.rejection import Rejection
from flowcore.model.snapshot import NodeTable
from flowcore.model.volumes import Storage, Volumes

NAMES = (volume_restrictions.NAME, node_volume_limits.NAME, volume_binding.NAME, volume_zone.NAME)
_IN_PREFILTER = (volume_restrictions, volume_binding, volume_zone)


def outright(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What ends a pod's cycle in PreFilter, before any node is looked at: every node is rejected."""
    if not volumes:
        return ()
    found = []
    for plugin in _IN_PREFILTER:
        reason = plugin.outright(volumes, storage)
        if reason:
            found.append((plugin.NAME, (Rejection(reason, np.ones(len(table.nodes), dtype=np.bool_)),)))
    return tuple(found)


def rejections(volumes: Volumes, storage: Storage, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What each filter says of each node, for those that have not said everything already."""
    if not volumes:
        return ()
    return tuple(
        (plugin.NAME, plugin.rejections(volumes, storage, table))
        for plugin in (volume_restrictions, node_volume_limits, volume_binding, volume_zone)
        if plugin not in _IN_PREFILTER or not plugin.outright(volumes, storage)
    )

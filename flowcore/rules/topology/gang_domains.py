"""The nodes that gangs keep to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.model.gangs import Gang


def allowed_by_gangs(names: Iterable[str], snapshot: Snapshot) -> Bools:
    """bool[N]: the nodes of the domains of gangs; gangs that keep to none, or have not chosen one, allow all."""
    among = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    for gang in (snapshot.gangs[name] for name in names if name in snapshot.gangs):
        if gang.topology_key and gang.domain:
            among &= nodes_of_domain(gang, snapshot.table)
    return among


def nodes_of_domain(gang: Gang, table: NodeTable) -> Bools:
    """bool[N]: the nodes of its domain."""
    column = table.column(gang.topology_key)
    code = column.values.index(gang.domain) if gang.domain in column.values else -2
    nodes: Bools = column.codes == code
    return nodes

"""Whether pods find a NUMA zone, beside all pods that are on their way to the same node.

A place that is held (for a replacement, or for a group that waits) is not counted: the pod that it is held for is
planned again, and asked about when it takes the place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from flowcore.cluster.arrays.numa_room import NumaRoom
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.indexes.numa_index import has_zone
from flowcore.model.numa import NumaClaims, NumaNeeds, NumaNode
from flowcore.model.pods import Pod
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.transitions import Phase

_HELD = frozenset({Phase.HELD, Phase.AWAITING_REPLACEMENT})


def planned_needs(ledger: Ledger, node: str, besides: str = "") -> Iterator[NumaNeeds]:
    """What pods need that are on their way to a node, all but one."""
    for key in ledger.by_node.get(node, ()):
        reservation = ledger.reservations[key]
        needs = reservation.pod.pod_class.numa
        if needs is not None and key != besides and reservation.phase not in _HELD:
            yield needs


def finds_zone(cluster: Cluster, ledger: Ledger, pod: Pod, node: str) -> bool:
    """Whether a pod finds a zone on a node, as far as its zones are known."""
    needs, report = pod.pod_class.numa, cluster.numa.reports.get(node)
    if needs is None:
        return True
    if report is None:
        return not needs.everywhere
    return has_zone(report, cluster.numa.claims(node, planned_needs(ledger, node, pod.key)), needs)


class NumaZones:
    """What is free in the zones of all nodes with a report, kept; only nodes that changed are looked at again."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._numa, self._ledger = cluster, cluster.numa, ledger
        self._changed = cluster.numa.follow()
        #: Position of each node; 0 stands for nodes without a report.
        self._index = {"": 0}
        self._room = NumaRoom.of({}, self._index)

    def nodes_without_zone(self, pod: Pod, nodes: Sequence[str]) -> set[str]:
        """The nodes on which a pod finds no zone, as ``finds_zone`` says of each."""
        needs = pod.pod_class.numa
        if needs is None:
            return set()
        full = self._without_zone(needs, nodes)
        # Its own reservation does not stand in its way.
        own = self._ledger.reservations.get(pod.key)
        if own is not None and own.node in full and finds_zone(self._cluster, self._ledger, pod, own.node):
            full.discard(own.node)
        return full

    def _without_zone(self, needs: NumaNeeds, nodes: Sequence[str]) -> set[str]:
        self._follow()
        if not needs.everywhere and not self._room.any_single:
            return set()
        position = self._index.get
        positions = np.array([position(node, 0) for node in nodes], dtype=np.int64)
        return {nodes[index] for index in np.nonzero(self._room.counts(needs, positions) == 0)[0].tolist()}

    def _follow(self) -> None:
        reports = self._numa.reports
        for node in self._changed:
            report, position = reports.get(node), self._index.get(node)
            if report is None:
                if position is not None:
                    self._room.put(position, None)
            elif position is None or not self._room.put(position, *self._entry(node)):
                self._build()
                break
        self._changed.clear()

    def _build(self) -> None:
        reports = self._numa.reports
        self._index = {name: position for position, name in enumerate(["", *reports])}
        self._room = NumaRoom.of({name: self._entry(name) for name in reports}, self._index)

    def _entry(self, node: str) -> tuple[NumaNode, NumaClaims]:
        return self._numa.reports[node], self._numa.claims(node, planned_needs(self._ledger, node))

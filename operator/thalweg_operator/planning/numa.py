"""Sends the worker what is free in the NUMA zones of nodes: first of all nodes that report them, then what changed."""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.model.numa import NumaClaims, NumaNode
from thalweg_operator.reservations.ledger import Ledger
from thalweg_operator.reservations.numa_zones import planned_needs

#: A report, and what pods take that it may not show.
Entry = tuple[NumaNode, NumaClaims]


class NumaTracker:
    """See the module. Without reports it costs nothing."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._ledger = cluster, ledger
        self._sent: dict[str, Entry] = {}

    def update(self, now: float, *, fresh: bool) -> tuple[list[Entry], list[str]]:
        """What is new or changed since the last call, and the nodes whose reports are gone.

        Args:
            now: seconds since the epoch.
            fresh: whether the worker has no state.
        """
        numa = self._cluster.numa
        numa.forget_reported(now)
        if fresh:
            self._sent = {}
        current = {
            name: (report, numa.claims(name, planned_needs(self._ledger, name), now))
            for name, report in numa.reports.items()
        }
        changed = [entry for name, entry in current.items() if self._sent.get(name) != entry]
        removed = sorted(self._sent.keys() - current.keys())
        self._sent = current
        return changed, removed

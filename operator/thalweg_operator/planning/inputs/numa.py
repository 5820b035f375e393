"""Sends the worker what is free in the NUMA zones of nodes: first of all nodes that report them, then what changed."""

from __future__ import annotations

from flowcore.cluster.cluster import Cluster
from flowcore.model.numa import NumaClaims, NumaNode
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.reservations.ledger.numa_zones import planned_needs

#: A report, and what pods take that it may not show.
Entry = tuple[NumaNode, NumaClaims]


class NumaTracker:
    """Collects the NUMA zones that the worker does not know yet. It looks only at nodes that changed."""

    def __init__(self, cluster: Cluster, ledger: Ledger) -> None:
        self._cluster, self._ledger = cluster, ledger
        self._changed = cluster.numa.follow()
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
            self._changed.update(numa.reports)
        changed: list[Entry] = []
        removed: list[str] = []
        for name in sorted(self._changed):
            report, sent = numa.reports.get(name), self._sent.get(name)
            if report is not None:
                entry = report, numa.claims(name, planned_needs(self._ledger, name), now)
                if entry != sent:
                    self._sent[name] = entry
                    changed.append(entry)
            elif sent is not None:
                del self._sent[name]
                removed.append(name)
        self._changed.clear()
        return changed, removed

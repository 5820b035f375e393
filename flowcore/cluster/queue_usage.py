"""What the pods of each queue hold."""

from __future__ import annotations

from collections import Counter

from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod
from flowcore.model.queues import QueueUsage
from flowcore.model.resources import PODS, Amounts


class QueueUsageSums:
    """Sums over pods with room, by queue."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._used: dict[str, Counter[str]] = {}
        self._leaving: dict[str, Counter[str]] = {}

    def add_pod(self, pod: Pod) -> None:
        """Adds a pod of the cluster, if it holds room on a known node."""
        if pod.node_name in self._cluster.nodes and not pod.terminal:
            self.add(pod, pod.usage, leaving=pod.deleting or pod.key in self._cluster.leaving)

    def add(self, pod: Pod, usage: Amounts, *, leaving: bool = False) -> None:
        """Adds room that a pod holds, whether bound or reserved."""
        name = self._cluster.queues.of(pod, self._cluster.namespaces)
        if name:
            for sums in (self._used, self._leaving) if leaving else (self._used,):
                total = sums.setdefault(name, Counter())
                total[PODS] += 1
                for resource, amount in usage:
                    total[resource] += amount

    def totals(self) -> dict[str, QueueUsage]:
        """The sums by name of queue."""
        return {
            name: QueueUsage(tuple(sorted(used.items())), tuple(sorted(self._leaving.get(name, Counter()).items())))
            for name, used in sorted(self._used.items())
        }

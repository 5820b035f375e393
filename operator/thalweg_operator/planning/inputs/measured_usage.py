"""Measured usage for the rounds that plan with it: at first of all nodes, then of the nodes that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowcore.cluster.cluster import Cluster
from flowcore.cluster.usage_samples import PodOnNode
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.usage import MeasuredLoad
from flowcore.planning.round_input import pod_on_node
from thalweg_operator.reservations.ledger.ledger import Ledger
from thalweg_operator.usage.poller import UsagePoller
from thalweg_operator.yielding import yielding


class MeasuredUsageTracker:
    """Collects the measured usage that the worker does not know yet."""

    def __init__(self, cluster: Cluster, ledger: Ledger, usage: UsagePoller | None) -> None:
        """``usage``: None: nothing is measured."""
        self._cluster, self._ledger, self._usage = cluster, ledger, usage
        #: Loads that the worker has, by node.
        self._sent: dict[str, MeasuredLoad] = {}
        #: Nodes that came or changed since: the worker may have no load of them.
        self._touched: set[str] = set()
        #: Nodes with arrivals in the last request, and the number of polls before it.
        self._with_arrivals: set[str] = set()
        self._polls = 0

    @property
    def loads(self) -> Mapping[str, MeasuredLoad]:
        """What the worker plans with, by node."""
        return self._sent

    def foreseen(self, pod: Pod) -> tuple[int, int] | None:
        """Milli-cores and bytes of memory that a pod will use; None: unknown."""
        return None if self._usage is None else self._usage.store.foreseen(pod.usage_class)

    async def changes(
        self, put_nodes: Iterable[Node], removed_nodes: Iterable[str], now: float, *, planned: bool, fresh: bool
    ) -> list[MeasuredLoad]:
        """Loads that count otherwise than the worker was told last.

        Args:
            put_nodes, removed_nodes: nodes that came or changed, and that went, since the last request.
            now: seconds since the epoch.
            planned: whether the round plans anything. If not, the loads go to the next round that does.
            fresh: whether the worker has no state.
        """
        if fresh:
            self._sent, self._polls = {}, 0
        usage = self._usage
        if usage is None or not usage.polls:
            return []  # the first loads are of all nodes
        self._touched.update(node.name for node in put_nodes)
        for name in removed_nodes:
            self._touched.discard(name)
            self._sent.pop(name, None)
        if not planned:
            return []
        touched, self._touched = self._touched, set()
        # Arrivals add to samples of nodes; without any, nobody looks through all pods for them.
        polls, arrivals = usage.polls, await self._arrivals(usage, now) if usage.store.measures_nodes else {}
        nodes = touched.union(arrivals, self._with_arrivals) if polls == self._polls else self._cluster.nodes.keys()
        self._with_arrivals, self._polls = set(arrivals), polls
        changed: list[MeasuredLoad] = []
        async for node in yielding(nodes & self._cluster.nodes.keys()):
            load = usage.store.measured_load(node, arrivals.get(node, ()), now)
            if node in touched or load != self._sent.get(node, MeasuredLoad(node)):
                self._sent[node] = load
                changed.append(load)
        return changed

    async def _arrivals(self, usage: UsagePoller, now: float) -> dict[str, list[PodOnNode]]:
        """By node: pods that may have come later than its newest sample began, and those on their way."""
        since, arrivals = usage.oldest_begin(now), dict[str, list[PodOnNode]]()
        async for pod in yielding(list(self._cluster.pods.values())):
            if pod.node_name and not pod.terminal and (not pod.started or pod.started > since):
                arrivals.setdefault(pod.node_name, []).append(pod_on_node(usage.store, pod, pod.started))
        ledger = self._ledger
        for key, reservation in list(ledger.reservations.items()):
            if key not in ledger.awaiting:  # its victims, which hold its room, are in the sample
                arrivals.setdefault(reservation.node, []).append(pod_on_node(usage.store, reservation.pod, 0.0))
        return arrivals

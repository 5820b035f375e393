"""What is taken on each node, and which pods count there for the rules between pods.

Two sides add to it: the cluster adds its bound pods, the operator's ledger adds its reservations. So the usage of a
node is always the sum of both. Every change is marked, for the worker to be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from flowcore.model.node_usage import NodeUsage
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import HostPort, Pod, PodClass
from flowcore.model.resources import Amounts, capped, non_zero_requests
from flowcore.model.volumes import ClaimVolume, Disk


class Excess(msgspec.Struct, frozen=True, gc=False):
    """What pods that come need beyond what pods that leave for them hold; see NodeUsageSums for the fields."""

    amounts: Amounts = ()
    pods: int = 0
    cpu: int = 0
    memory: int = 0

    @classmethod
    def of(cls, coming: Iterable[PodClass], leaving: Iterable[Pod]) -> Excess:
        """The excess of some pods' requests over the usage of others, of each resource at least 0."""
        added, removed = NodeUsageSums(), NodeUsageSums()
        for pod_class in coming:
            added.change(pod_class.requests, PodClass(unrequested=pod_class.unrequested), 1)
        for pod in leaving:
            removed.change(pod.usage, PodClass(unrequested=pod.pod_class.unrequested), 1)
        more = ((name, amount - removed.amounts[name]) for name, amount in added.amounts.items())
        return cls(
            tuple((name, amount) for name, amount in more if amount > 0),
            max(0, added.pods - removed.pods),
            max(0, added.cpu - removed.cpu),
            max(0, added.memory - removed.memory),
        )


NO_EXCESS = Excess()


@dataclass(slots=True)
class NodeUsageSums:
    """What is taken on one node; sums of Python integers, so that nothing overflows."""

    amounts: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    ports: Counter[HostPort] = field(default_factory=Counter)
    volumes: Counter[ClaimVolume | Disk] = field(default_factory=Counter)

    def change(self, usage: Amounts, pod_class: PodClass, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) one pod."""
        cpu, memory = non_zero_requests(usage, pod_class.unrequested)
        # As change_excess, spelled out: one more call would cost half as much again, for each pod that comes or goes.
        for name, amount in usage:
            self.amounts[name] += sign * amount
        self.pods += sign
        self.cpu += sign * cpu
        self.memory += sign * memory
        if pod_class.host_ports or pod_class.volumes:
            self.change_claims(pod_class, sign)

    def change_excess(self, excess: Excess, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) amounts that belong to no single pod."""
        for name, amount in excess.amounts:
            self.amounts[name] += sign * amount
        self.pods += sign * excess.pods
        self.cpu += sign * excess.cpu
        self.memory += sign * excess.memory

    def change_claims(self, pod_class: PodClass, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) the host ports and volumes of one pod."""
        for port in pod_class.host_ports:
            self.ports[port] += sign
            if not self.ports[port]:
                del self.ports[port]
        for volume in pod_class.volumes:
            self.volumes[volume] += sign
            if not self.volumes[volume]:
                del self.volumes[volume]

    def to_usage(self, node: str) -> NodeUsage:
        """The sums as a value. Amounts above the largest that an array holds are capped: more is no fuller."""
        amounts = capped(self.amounts.items())
        return NodeUsage(node, amounts, self.pods, self.cpu, self.memory, tuple(self.ports), tuple(self.volumes))

    def copy(self) -> NodeUsageSums:
        """A copy that changes independently."""
        counters = (self.amounts.copy(), self.pods, self.cpu, self.memory, self.ports.copy(), self.volumes.copy())
        return NodeUsageSums(*counters)

    @property
    def empty(self) -> bool:
        """Whether nothing is counted. A pod that waits for victims may count without being one more pod."""
        return not (self.pods or self.cpu or self.memory or self.ports or self.volumes or any(self.amounts.values()))


class Occupancy:
    """Sums of usage by node, and the pods that count there.

    Attributes:
        generation: rises with every change of the cluster that scheduling can see; ``Cluster`` raises it too.
        usage: of the nodes where a pod is counted, by name.
        pod_index: pods that hold room, as rules between pods see them.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.pod_index = PodIndex()
        self.usage: dict[str, NodeUsageSums] = {}
        self._dirty_usage: set[str] = set()
        #: None: everything changed, as far as the next receiver is concerned.
        self._pod_deltas: dict[PodSignature, dict[str, int]] | None = None

    def usage_of(self, node: str) -> NodeUsageSums:
        """What is taken on a node. Not to be changed by the caller."""
        return self.usage.get(node) or NodeUsageSums()

    def change_usage(self, node: str, usage: Amounts, pod_class: PodClass, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) the room of one pod."""
        sums = self._sums(node)
        sums.change(usage, pod_class, sign)
        self._changed(node, sums)

    def change_excess(self, node: str, before: Excess, after: Excess) -> None:
        """Counts another excess than before on a node."""
        if before != after:
            sums = self._sums(node)
            sums.change_excess(before, -1)
            sums.change_excess(after, 1)
            self._changed(node, sums)

    def change_claims(self, node: str, pod_class: PodClass, sign: int) -> None:
        """Adds (sign 1) or removes (sign -1) the host ports and volumes of one pod."""
        sums = self._sums(node)
        sums.change_claims(pod_class, sign)
        self._changed(node, sums)

    def _sums(self, node: str) -> NodeUsageSums:
        sums = self.usage.get(node)
        if sums is None:
            sums = self.usage[node] = NodeUsageSums()
        return sums

    def _changed(self, node: str, sums: NodeUsageSums) -> None:
        if sums.empty:
            del self.usage[node]
        self._dirty_usage.add(node)
        self.generation += 1

    def change_pods(self, signature: PodSignature, node: str, by: int) -> None:
        """Adds ``by`` pods of a signature on a node; below zero: fewer."""
        self.pod_index.change(signature, node, by)
        self._note_pods(signature, node, by)

    def exchange_pods(self, before: PodSignature, after: PodSignature, node: str) -> None:
        """A pod that is counted on a node counts with another signature from now on."""
        self.pod_index.exchange(before, after, node)
        if before != after:
            self._note_pods(before, node, -1)
            self._note_pods(after, node, 1)

    def _note_pods(self, signature: PodSignature, node: str, by: int) -> None:
        if self._pod_deltas is None:
            return
        on = self._pod_deltas.setdefault(signature, {})
        on[node] = on.get(node, 0) + by
        if not on[node]:
            del on[node]
            if not on:
                del self._pod_deltas[signature]

    def mark_dirty(self, node: str) -> None:
        """The next ``take_dirty_nodes`` returns this node, if it is asked for."""
        self._dirty_usage.add(node)

    def mark_pods_dirty(self) -> None:
        """The next ``take_pod_deltas`` returns all pods. Until then their changes cost nothing."""
        self._pod_deltas = None

    def take_dirty_nodes(self) -> list[str]:
        """Nodes whose usage changed since the last call, sorted."""
        dirty, self._dirty_usage = sorted(self._dirty_usage), set()
        return dirty

    def take_pod_deltas(self) -> dict[PodSignature, dict[str, int]]:
        """By how many pods each signature changed on each node since the last call; all pods at the first."""
        deltas, self._pod_deltas = self._pod_deltas, {}
        return self.pod_index.copy_counts() if deltas is None else deltas

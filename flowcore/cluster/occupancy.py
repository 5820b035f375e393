"""What is taken on each node, and which pods count there for the rules between pods.

Two sides add to it: the cluster adds its bound pods, the operator's ledger adds its reservations. So the usage of a
node is always the sum of both. Every change is marked, for the worker to be told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from flowcore.cluster.snapshot import non_zero_requests
from flowcore.model.node_usage import NodeUsage
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import HostPort, PodClass
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.resources import Amounts
from flowcore.model.volumes import ClaimVolume, Disk


@dataclass(slots=True)
class NodeUsageSums:
    """What is taken on one node; sums of Python integers, so that nothing overflows."""

    amounts: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    cpu: int = 0
    memory: int = 0
    ports: Counter[HostPort] = field(default_factory=Counter)
    volumes: Counter[ClaimVolume | Disk] = field(default_factory=Counter)

    def change(self, usage: Amounts, pod_class: PodClass, sign: int, counted_usage: Amounts | None = None) -> None:
        """Adds (sign 1) or removes (sign -1) one pod.

        Args:
            counted_usage: usage of the pod's victim. It is counted already, so only what exceeds it is added.
        """
        cpu, memory = non_zero_requests(usage)
        if counted_usage is None:
            self.pods += sign
        else:
            counted, (old_cpu, old_memory) = dict(counted_usage), non_zero_requests(counted_usage)
            usage = tuple((name, max(0, amount - counted.get(name, 0))) for name, amount in usage)
            cpu, memory = max(0, cpu - old_cpu), max(0, memory - old_memory)
        for name, amount in usage:
            self.amounts[name] += sign * amount
        self.cpu += sign * cpu
        self.memory += sign * memory
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
        amounts = tuple((name, min(amount, MAX_AMOUNT)) for name, amount in self.amounts.items())
        return NodeUsage(node, amounts, self.pods, self.cpu, self.memory, tuple(self.ports), tuple(self.volumes))

    def copy(self) -> NodeUsageSums:
        """A copy that changes independently."""
        counters = (self.amounts.copy(), self.pods, self.cpu, self.memory, self.ports.copy(), self.volumes.copy())
        return NodeUsageSums(*counters)

    @property
    def empty(self) -> bool:
        """Whether no pod is counted."""
        return self.pods == 0


class Occupancy:
    """See the module.

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
        self._pod_deltas: dict[tuple[PodSignature, str], int] = {}

    def usage_of(self, node: str) -> NodeUsageSums:
        """What is taken on a node. Not to be changed by the caller."""
        return self.usage.get(node) or NodeUsageSums()

    def change_usage(
        self, node: str, usage: Amounts, pod_class: PodClass, sign: int, counted_usage: Amounts | None = None
    ) -> None:
        """Adds (sign 1) or removes (sign -1) the room of one pod; see ``NodeUsageSums.change``."""
        sums = self.usage.get(node)
        if sums is None:
            sums = self.usage[node] = NodeUsageSums()
        sums.change(usage, pod_class, sign, counted_usage)
        if sums.empty:
            del self.usage[node]
        self._dirty_usage.add(node)
        self.generation += 1

    def change_pods(self, signature: PodSignature, node: str, by: int) -> None:
        """Counts so many more pods of a signature on a node, or fewer."""
        self.pod_index.change(signature, node, by)
        key = (signature, node)
        self._pod_deltas[key] = self._pod_deltas.get(key, 0) + by
        if not self._pod_deltas[key]:
            del self._pod_deltas[key]

    def mark_dirty(self, node: str) -> None:
        """The next ``take_usage`` returns this node, if it is asked for."""
        self._dirty_usage.add(node)

    def mark_pods_dirty(self) -> None:
        """The next ``take_pod_deltas`` returns all pods."""
        self._pod_deltas = {(signature, node): count for signature, node, count in self.pod_index.counts()}

    def take_dirty_nodes(self) -> list[str]:
        """Nodes whose usage changed since the last call, sorted."""
        dirty, self._dirty_usage = sorted(self._dirty_usage), set()
        return dirty

    def take_pod_deltas(self) -> dict[tuple[PodSignature, str], int]:
        """By how many pods each signature and node changed since the last call."""
        deltas, self._pod_deltas = self._pod_deltas, {}
        return deltas

"""GPUs that are free and of no use: what runs beside them leaves no room for the pods that would ask for them.

The pods that run say what the next ones will ask for. Of a node's free GPUs so many are stranded, as expected::

    sum over kinds of pods: share of the kind * (free GPUs - GPUs that pods of the kind could still take there)

``share``: of all GPUs that pods hold, those that the kind holds. So seven free GPUs of a node with eight are no use for
the share of the pods that want eight; and all of them are stranded where no memory is left. That is the measure of
fragments of "Beware of Fragmentation" (USENIX ATC 2023), with whole GPUs, and with kinds weighed by their GPUs.

What waits says nothing here: while it waits nobody moves for gain to a node that it may use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, Snapshot
from flowcore.model.pod_index import EMPTY_SIGNATURE
from flowcore.model.pods import PodClass
from flowcore.model.running_pods import RunningPod
from flowcore.rules.filters import static_fits

#: Kinds that count for each sort of GPU. Each costs some passes over the nodes.
_MOST_KINDS = 16
_GPU = "/gpu"


@dataclass(frozen=True, eq=False)
class _GPUPods:
    """Pods that ask for the same and may use the same nodes.

    Attributes:
        requests: int64[R], what one asks for.
        allowed: bool[N], nodes that take such pods if they have room.
        share: of the GPUs that pods hold.
    """

    requests: Int64s
    allowed: Bools
    share: float


@dataclass(frozen=True, eq=False)
class StrandedGPUs:
    """What stranded GPUs cost, by what runs as a round begins.

    Attributes:
        kinds: of pods with GPUs, by the column of their GPUs.
    """

    kinds: dict[int, tuple[_GPUPods, ...]]

    @classmethod
    def of(cls, snapshot: Snapshot, running: Iterable[RunningPod]) -> Self:
        """By the pods that run; resources that end with ``/gpu`` are GPUs."""
        columns = {name: column for column, name in enumerate(snapshot.resources) if name.endswith(_GPU)}
        if not columns:
            return cls({})
        held: dict[int, Counter[PodClass]] = {column: Counter() for column in columns.values()}
        for pod_class, count in Counter(map(attrgetter("pod_class"), running)).items():
            for name, amount in pod_class.requests:
                if name in columns:
                    held[columns[name]][_asking(pod_class)] += amount * count
        return cls({column: _kinds(gpus, column, snapshot) for column, gpus in held.items() if gpus})

    def costs(self, free: Int64s, nodes: Int64s, price: int) -> Int64s:
        """int64[len(nodes)], none negative: what the stranded GPUs of nodes cost.

        Args:
            free: int64[len(nodes), R], what is free there.
            nodes: a node may come twice.
            price: of one stranded GPU.
        """
        stranded = np.zeros(len(nodes))
        for column, kinds in self.kinds.items():
            rows = np.nonzero(free[:, column] > 0)[0]
            if not len(rows):
                continue
            room, gpus, places = free[rows], free[rows, column], nodes[rows]
            useful, usable = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.bool_)
            for kind in kinds:
                allowed = kind.allowed[places]
                usable |= allowed
                useful += kind.share * np.where(allowed, _pods(room, kind.requests) * kind.requests[column], 0)
            # GPUs of a node that takes nobody are out of reach, whatever runs there.
            stranded[rows] += np.where(usable, gpus - useful, 0.0)
        costs: Int64s = np.rint(price * stranded).astype(np.int64)
        return costs

    def increase(self, free: Int64s, nodes: Int64s, usage: Int64s, price: int) -> Int64s:
        """int64[len(nodes)]: by how much more they cost with one more pod on each of the nodes; negative: less.

        Args:
            free: int64[N, R], what is free without it.
            usage: int64[R], what it takes.
        """
        if not price or not self.kinds:
            return np.zeros(len(nodes), dtype=np.int64)
        without = free[nodes]
        return self.costs(without - usage, nodes, price) - self.costs(without, nodes, price)

    def decrease(self, free: Int64s, nodes: Int64s, usage: Int64s, price: int) -> Int64s:
        """int64[len(nodes)]: by how much less they cost with one pod less on each of the nodes; as ``increase``."""
        if not price or not self.kinds:
            return np.zeros(len(nodes), dtype=np.int64)
        with_it = free[nodes]
        return self.costs(with_it, nodes, price) - self.costs(with_it + usage, nodes, price)


def _asking(pod_class: PodClass) -> PodClass:
    """What counts of a class: what it asks for, and which nodes take it."""
    return PodClass(
        requests=pod_class.requests,
        node_selector=pod_class.node_selector,
        required_affinity=pod_class.required_affinity,
        tolerations=pod_class.tolerations,
    )


def _kinds(held: Counter[PodClass], column: int, snapshot: Snapshot) -> tuple[_GPUPods, ...]:
    """Those that hold the most GPUs, and for each number of GPUs one; the others count as that of their number.

    Args:
        held: GPUs of the pods of each class.
    """
    requests = {pod_class: snapshot.vector(pod_class.requests) for pod_class in held}
    numbers = {pod_class: int(amounts[column]) for pod_class, amounts in requests.items()}
    ranked = sorted(held, key=lambda pod_class: (-held[pod_class], pod_class.requests))
    first: dict[int, PodClass] = {}
    for pod_class in ranked:
        first.setdefault(numbers[pod_class], pod_class)
    kept = list(dict.fromkeys((*first.values(), *ranked)))[:_MOST_KINDS]
    counts_itself, counted = frozenset(kept), Counter[PodClass]()
    for pod_class in ranked:
        counted[pod_class if pod_class in counts_itself else first[numbers[pod_class]]] += held[pod_class]
    total = sum(counted[pod_class] for pod_class in kept)
    return tuple(
        _GPUPods(requests[pod_class], static_fits(pod_class, EMPTY_SIGNATURE, snapshot), counted[pod_class] / total)
        for pod_class in kept
    )


def _pods(room: Int64s, requests: Int64s) -> Int64s:
    """int64[len(room)]: how many pods with such requests fit into the room of each row."""
    columns = np.nonzero(requests)[0].tolist()
    pods: Int64s = room[:, columns[0]] // requests[columns[0]]
    for column in columns[1:]:
        pods = np.minimum(pods, room[:, column] // requests[column])
    whole: Int64s = np.maximum(pods, 0)
    return whole

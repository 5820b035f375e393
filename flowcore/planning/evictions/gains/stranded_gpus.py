"""GPUs that are free and of no use: what runs beside them leaves no room for the pods that would ask for them.

The pods that run say what the next ones will ask for. Of a node's free GPUs so many are stranded, as expected::

    sum over kinds of pods: share of the kind * (free GPUs - GPUs that pods of the kind could still take there)

``share``: of all GPUs that pods hold, those that the kind holds. So seven free GPUs of a node with eight are no use for
the share of the pods that want eight; and all of them are stranded where no memory is left. That is the measure of
fragments of "Beware of Fragmentation" (USENIX ATC 2023), with whole GPUs, and with kinds weighed by their GPUs.

What waits says nothing here: while it waits nobody moves for gain to a node that it may use.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Self

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, Snapshot
from flowcore.costs.model import Float64s
from flowcore.model.pod_index import EMPTY_SIGNATURE
from flowcore.model.pods import PodClass
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod
from flowcore.model.selectors import Labels
from flowcore.rules.filters import static_fits

#: Kinds that count for each sort of GPU. Each costs some passes over the nodes.
_MOST_KINDS = 16
#: Sets of nodes that rules keep pods to. Each costs a pass of the filters that read nothing but nodes.
_MOST_RULES = 32
_GPU = "/gpu"


@dataclass(frozen=True, eq=False)
class _GPUPods:
    """Pods that ask for the same, or nearly so.

    Attributes:
        requests: int64[R], what one asks for: of several classes the median.
        share: float64[N], of the GPUs that pods hold: those of the pods that each node takes if it has room.
    """

    requests: Int64s
    share: Float64s


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
                if name in columns and amount:
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
                share = kind.share[places]
                usable |= share > 0
                useful += share * (_pods(room, kind.requests) * kind.requests[column])
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
    return msgspec.structs.replace(_rules(pod_class), requests=pod_class.requests)


def _rules(pod_class: PodClass) -> PodClass:
    """What says of a class which nodes take it, whatever it asks for."""
    return PodClass(
        node_selector=pod_class.node_selector,
        required_affinity=pod_class.required_affinity,
        tolerations=pod_class.tolerations,
    )


def _content(pod_class: PodClass) -> tuple[Amounts, Labels, str]:
    """What puts classes in one order, whatever the order of the pods."""
    rules = repr((pod_class.required_affinity, pod_class.tolerations))
    return pod_class.requests, pod_class.node_selector, rules


def _kinds(held: Counter[PodClass], column: int, snapshot: Snapshot) -> tuple[_GPUPods, ...]:
    """Of the classes that hold the most GPUs each is a kind; of the others those of each number of GPUs together.

    Where rules keep pods to very many sets of nodes, those count whose pods hold the most GPUs.

    Args:
        held: GPUs of the pods of each class.
    """
    rules = {pod_class: _rules(pod_class) for pod_class in held}
    by_rules = Counter[PodClass]()
    for pod_class, gpus in held.items():
        by_rules[rules[pod_class]] += gpus
    allowed = {which: static_fits(which, EMPTY_SIGNATURE, snapshot) for which in _most(by_rules, _MOST_RULES)}
    requests = {pod_class: snapshot.vector(pod_class.requests) for pod_class in held if rules[pod_class] in allowed}
    numbers = {pod_class: int(amounts[column]) for pod_class, amounts in requests.items()}
    by_number = Counter[int]()
    for pod_class, number in numbers.items():
        by_number[number] += held[pod_class]
    counted = sorted(by_number, key=lambda number: (-by_number[number], number))[:_MOST_KINDS]
    ranked = [pod_class for pod_class in _most(held, len(held)) if numbers.get(pod_class) in counted]
    alone = len(ranked) if len(ranked) <= _MOST_KINDS else _MOST_KINDS - len(counted)
    together: defaultdict[int, list[PodClass]] = defaultdict(list)
    for pod_class in ranked[alone:]:
        together[numbers[pod_class]].append(pod_class)
    total = sum(held[pod_class] for pod_class in ranked)
    kinds = []
    for classes in (*([pod_class] for pod_class in ranked[:alone]), *together.values()):
        share = np.zeros(len(snapshot.free))
        for pod_class in classes:
            share[allowed[rules[pod_class]]] += held[pod_class] / total
        median = _median([requests[member] for member in classes], [held[member] for member in classes])
        kinds.append(_GPUPods(median, share))
    return tuple(kinds)


def _most(held: Counter[PodClass], count: int) -> list[PodClass]:
    """So many classes that hold the most GPUs."""
    return sorted(held, key=lambda pod_class: (-held[pod_class], _content(pod_class)))[:count]


def _median(requests: Sequence[Int64s], held: Sequence[int]) -> Int64s:
    """int64[R]: of each resource what pods with half of the GPUs ask for at most. A few large pods change little.

    Args:
        requests: int64[R], of each class.
        held: GPUs of each.
    """
    amounts, weights = np.array(requests), np.array(held)
    order = np.argsort(amounts, axis=0, kind="stable")
    reached = np.cumsum(weights[order], axis=0) * 2 >= weights.sum()
    medians: Int64s = np.take_along_axis(amounts, order, axis=0)[reached.argmax(axis=0), np.arange(amounts.shape[1])]
    return medians


def _pods(room: Int64s, requests: Int64s) -> Int64s:
    """int64[len(room)]: how many pods with such requests fit into the room of each row."""
    columns = np.nonzero(requests)[0].tolist()
    pods: Int64s = room[:, columns[0]] // requests[columns[0]]
    for column in columns[1:]:
        pods = np.minimum(pods, room[:, column] // requests[column])
    whole: Int64s = np.maximum(pods, 0)
    return whole

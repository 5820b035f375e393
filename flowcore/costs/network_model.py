"""The seam between a round and a cost model that declares a network of its own.

Source: Firmament's policy API: "the scheduling policy can define aggregator nodes", and arcs of "(arc cost, arc minimum
flow requirement, arc maximum capacity)" with a gain. Each pod sends one unit of flow. A unit that arrives at a node
places a pod there. The sink behind the nodes is implied, and so is an arc from pods to UNSCHEDULED.

A plug-in needs two things: a name, and a method ``network`` (``NetworkCostModel``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Final, Protocol, runtime_checkable

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s, NodeTable, Snapshot
from flowcore.costs.flat_potential import FlatPotential
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.costs.scale import OMEGA
from flowcore.model.cost_policy import CostWeights
from flowcore.model.nodes import Node
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.pods import PodClass
from flowcore.model.policies import Selects
from flowcore.model.selectors import LabelSelector, Requirement


class Unscheduled(Enum):
    """The type of UNSCHEDULED."""

    UNSCHEDULED = "UNSCHEDULED"


#: The end of arcs for flow that places no pod.
UNSCHEDULED: Final = Unscheduled.UNSCHEDULED


@dataclass(frozen=True, slots=True, eq=False)
class Pods:
    """Pods of the round that are interchangeable, also by their labels: the start of arcs, with a unit for each.

    Attributes:
        name: for sentences: one of them and how many more.
        labels: those that the model reads (``NetworkCostModel.pod_labels``), without those that differ between the pods
            of one StatefulSet or Job.
        requests: what one pod asks for: millicores, bytes, counts.
        prices: int64[count], what leaving each pod pending costs, falling.
        costs: int64[N], what the policy's preferences for nodes cost on each node: positive, for models that want them.
        fits: int64[N], how many of them each node takes as the network is asked for, filters and rules included.
    """

    name: str
    namespace: str
    labels: Mapping[str, str]
    priority: int
    requests: Mapping[str, int]
    prices: Int64s
    costs: Int64s
    fits: Int64s

    @property
    def count(self) -> int:
        """How many they are."""
        return len(self.prices)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPods:
    """Pods that have a node: the start of arcs to where they are, for a network whose bounds count them.

    They are no pods of the round and stay. Before any waiting pod goes, units for them go to their node: by ways that
    meet most minimums, of these by the cheapest. These units count for minimums, maximums and gains, and cost nothing.
    What no way has room for is not counted.

    Attributes:
        labels: those that they were asked for by; they may have more.
        node: where they run, or have a place reserved.
        count: how many they are.
    """

    labels: Mapping[str, str]
    node: Node
    count: int

    @property
    def name(self) -> str:
        """For sentences."""
        listed = ", ".join(f"{key}={value}" for key, value in sorted(self.labels.items()))
        return f"pods {listed} on {self.node.name}" if listed else f"pods on {self.node.name}"


#: Where arcs begin and end: pods of the round, pods that have a node, an aggregator by its name, a node of the cluster,
#: or UNSCHEDULED.
End = Pods | PlacedPods | str | Node | Unscheduled


@dataclass(frozen=True, slots=True)
class Arc:
    """One arc of a network.

    Attributes:
        tail, head: its ends. Flow comes from pods and aggregators, and goes to aggregators, nodes and UNSCHEDULED. Arcs
            of ``PlacedPods`` have no minimum.
        cost: of each unit that enters it; a whole number, not negative, 1000 for one whole node's utilisation.
        minimum, maximum: how many units enter it at least and at most; None: any number.
        gain: how many units leave it for each that enters: a whole number or a Fraction, above zero.
        whole_or_none: no unit may enter it too, in place of the minimum.
        name: of what it is a part, for people.
    """

    tail: End
    head: End
    cost: int = 0
    minimum: int = 0
    maximum: int | None = None
    gain: int | Fraction = 1
    whole_or_none: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Network:
    """The arcs that a model declares, in any order.

    Pods without an arc to UNSCHEDULED have one of cost 0 for any number of them. Each pod that is left pending costs
    its price in any case, beside the costs of the arcs.
    """

    arcs: tuple[Arc, ...]

    @classmethod
    def of(cls, arcs: Iterable[Arc]) -> Network:
        """The network of these arcs."""
        return cls(tuple(arcs))


_NOT_SAID: Final = Selects()


@dataclass(frozen=True)
class NetworkView:
    """What a model sees of the round.

    Attributes:
        policy: name of the policy whose pods these are.
        pods: all of its pods that the network decides.
        load: of all nodes, in the order of ``nodes``.
        selects: which pods the policy governs.
    """

    policy: str
    pods: tuple[Pods, ...]
    load: Load
    _snapshot: Snapshot = field(repr=False)
    selects: Selects = _NOT_SAID

    @property
    def table(self) -> NodeTable:
        """The nodes as arrays; all arrays of the view have its order."""
        return self._snapshot.table

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return self.table.nodes

    @property
    def free(self) -> Int64s:
        """int64[N, R]: what is free on each node, in the order of ``resources``."""
        return self._snapshot.free

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the R resources."""
        return self._snapshot.resources

    def by_label(self, key: str) -> dict[str, list[Node]]:
        """The nodes by their value of a label, such as racks or zones; nodes without the label are in none."""
        column, nodes = self.table.column(key), dict[str, list[Node]]()
        for node, code in zip(self.nodes, column.codes.tolist(), strict=True):
            if code >= 0:
                nodes.setdefault(column.values[code], []).append(node)
        return nodes

    def running(self, labels: Mapping[str, str]) -> dict[str, int]:
        """How many pods with these labels run on each node, or have it reserved, by the node's name; any namespace."""
        requirements = tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items()))
        return self._counted(ConstraintMatch((LabelSelector(requirements),), None))

    def _counted(self, match: ConstraintMatch) -> Counter[str]:
        matching = self._snapshot.pod_index.matching_pods(match)
        counts = Counter[str]()
        for row, count in zip(*(array.tolist() for array in matching.to_arrays(self.table.index)), strict=True):
            name = self.nodes[row].name
            counts[name] += count
        return counts

    def placed(self, labels: Mapping[str, str]) -> tuple[PlacedPods, ...]:
        """The pods with these labels that run, or have a place reserved, by node: starts of arcs beside ``pods``.

        A pod that several calls return counts for each of them.
        """
        nodes, index = self.nodes, self.table.index
        return tuple(
            PlacedPods(dict(labels), nodes[index[name]], count) for name, count in self.running(labels).items() if count
        )

    def placed_by(
        self, own: Sequence[LabelSelector], anybody: Sequence[LabelSelector]
    ) -> list[tuple[PlacedPods, frozenset[int]]]:
        """The pods that have a node by the selectors that match them: each pod is in one entry, or in none.

        Args:
            own: match pods that the policy's own selectors match too, whoever placed them.
            anybody: match any pods; their numbers follow those of ``own``.
        """
        selects, first = self.selects, len(own)
        base = LabelSelector() if selects.pods is None else selects.pods
        counts_by = self._matching((*own, *anybody), base, selects.namespaces)
        for matched, counts in self._matching(anybody, LabelSelector(), None).items() if anybody else ():
            numbers = frozenset(first + number for number in matched)
            of_policy = [inside for each, inside in counts_by.items() if each - set(range(first)) == numbers]
            rest = Counter(counts)
            for inside in of_policy:
                rest.subtract(inside)
            counts_by[numbers] = counts_by.get(numbers, Counter()) + rest
        nodes, index = self.nodes, self.table.index
        return [
            (PlacedPods({}, nodes[index[name]], count), matched)
            for matched, counts in counts_by.items()
            for name, count in sorted(counts.items())
            if count > 0
        ]

    def _matching(
        self, selectors: Sequence[LabelSelector], base: LabelSelector, namespaces: LabelSelector | None
    ) -> dict[frozenset[int], Counter[str]]:
        """Pods by node, by the numbers of the selectors that match them; those that none matches are left out."""
        cells: dict[frozenset[int], Counter[str]] = {frozenset(): Counter()}
        for number in range(len(selectors)):
            split: dict[frozenset[int], Counter[str]] = {}
            for matched in cells:
                for some in (matched | {number}, matched):
                    together = (base, *(selectors[each] for each in sorted(some)))
                    selector = LabelSelector(tuple(wanted for each in together for wanted in each.requirements))
                    unless = tuple(selectors[each] for each in range(number + 1) if each not in some)
                    counts = self._counted(ConstraintMatch((selector,), namespaces, unless)) if some else Counter()
                    if counts or not some:
                        split[some] = counts
            cells = split
        return {matched: counts for matched, counts in cells.items() if matched}

    def taken(self, node: Node) -> float:
        """Which share of a node's cpu or memory is taken, of the two the larger; 0 for an empty node."""
        return float(self._taken[self.table.index[node.name]])

    @cached_property
    def _taken(self) -> Float64s:
        shares: Float64s = (self.load.taken[:, :2] / np.maximum(self.load.capacity[:, :2], 1.0)).max(axis=1)
        return shares

    def takes(self, pods: Pods) -> list[Node]:
        """The nodes that take any of these pods now."""
        fitting: Bools = pods.fits > 0
        return [self.nodes[row] for row in np.nonzero(fitting)[0].tolist()]


@runtime_checkable
class NetworkModel(CostModel, Protocol):
    """A cost model that declares a network for the pods of its policies; the network alone decides about them."""

    def network(self, view: NetworkView) -> Network:
        """The network of a round. Equal views give equal networks. An exception makes the policy's pods wait."""
        ...


def network_models(models: Mapping[str, CostModel]) -> frozenset[str]:
    """The names of those that declare a network."""
    return frozenset(name for name, model in models.items() if isinstance(model, NetworkModel))


class NetworkCostModel(FlatPotential, ABC):
    """Base of a NetworkModel: a subclass adds ``name`` and ``network``, and may say which labels it reads.

    What other pods of the cluster pay does not depend on it: its nodes have no potential.
    """

    name: ClassVar[str]
    #: The labels of waiting pods that ``network`` reads. Pods that differ in others only are one start of arcs, and the
    #: model sees no others. None: all labels. Jobs bring labels of their own, so naming them keeps networks small.
    pod_labels: ClassVar[Collection[str] | None] = None

    @abstractmethod
    def network(self, view: NetworkView) -> Network:
        """The network of one round; equal views give equal networks."""

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)

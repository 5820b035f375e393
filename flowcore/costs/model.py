"""The seam between a round and a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.resources import BANDWIDTH, CPU, MEMORY, PODS, Amounts
from flowcore.model.snapshot import MOST_ASSUMED, Int64s, NodeTable, Snapshot, assumed_amounts

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """How full nodes are, as cost models see it: N rows, all nodes of the table in its order unless it says otherwise.

    Attributes:
        capacity: float64[N, 3], allocatable cpu (milli), memory (bytes) and network bandwidth (bits per second).
        taken: float64[N, 3], what pods there count for (see snapshot.ASSUMED_CPU); of bandwidth what they ask for, or
            what was measured as the round began if that is more.
        pods_allowed: float64[N], allocatable pods.
        pods: float64[N], pods there.
    """

    table: NodeTable
    capacity: Float64s
    taken: Float64s
    pods_allowed: Float64s
    pods: Float64s

    @classmethod
    def of(cls, snapshot: Snapshot) -> Load:
        """The load of a snapshot's nodes as they stand."""
        columns, pods = [snapshot.resources.index(name) for name in (CPU, MEMORY)], snapshot.resources.index(PODS)
        allocatable, used = snapshot.allocatable, snapshot.used
        capacity, taken = np.zeros((len(used), 3)), np.zeros((len(used), 3))
        capacity[:, :2], taken[:, :2] = allocatable[:, columns], snapshot.assumed
        if BANDWIDTH in snapshot.resources:
            at = snapshot.resources.index(BANDWIDTH)
            capacity[:, 2] = allocatable[:, at]
            taken[:, 2] = np.maximum(used[:, at], snapshot.reports.bandwidth(snapshot.table.index))
        return cls(
            table=snapshot.table,
            capacity=capacity,
            taken=taken,
            pods_allowed=allocatable[:, pods].astype(np.float64),
            pods=used[:, pods].astype(np.float64),
        )

    def at(self, nodes: Int64s, more: Float64s | float = 0.0, more_pods: Int64s | int = 0) -> Load:
        """The load of these nodes, which may come twice, each row with so much more there.

        Args:
            more: float64[len(nodes), 3], added to what is taken.
            more_pods: int64[len(nodes)].
        """
        return Load(
            self.table,
            self.capacity[nodes],
            self.taken[nodes] + more,
            self.pods_allowed[nodes],
            self.pods[nodes] + more_pods,
        )


def counted_amounts(requests: Amounts) -> Float64s:
    """float64[3]: what a pod counts for, in the columns of ``Load.taken``."""
    bandwidth = min(dict(requests).get(BANDWIDTH, 0), MOST_ASSUMED)
    return np.array([*assumed_amounts(requests), bandwidth], dtype=np.float64)


@runtime_checkable
class CostModel(Protocol):
    """Prices the arcs of the network; costs are positive integers, 1000 for one whole node's utilisation.

    The cost of a pod on a node is ``arc + slot``: the arc from its class to the node is what the class brings,
    the slot is what the node's other pods of the same round make of it. What pods prefer is no matter of models: the
    round adds it to the arc (``preferences``). Everything follows from the arguments: equal ones give equal costs.
    """

    @property
    def name(self) -> str:
        """As a policy's ``cost.model`` names it."""

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:
        """int64[N], positive: cost of the class on each node, less what ``slot_costs`` says of the node.

        Args:
            size: float64[3], what one pod counts for, in the columns of ``Load.taken``.
            load: of all nodes of the table in its order, as the round begins.
        """

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:
        """int64[N, K]: cost of the slot after ``levels[k]`` other pods of the round, never falling along K.

        Args:
            load: of any nodes, as they are now: a node's slots depend on its own row alone.
            size: float64[N, 3], what one such pod counts for on each node.
            levels: int64[K], rising.
        """

    def slot_floors(
        self, load: Load, smallest: Float64s, largest: Float64s, levels: Int64s, weights: CostWeights
    ) -> Int64s:
        """int64[N, K]: what no pod pays for the node, arc excluded, after exactly ``levels[k]`` others of the round.

        Lower bounds rest on it: a floor that is too high is a wrong certificate, one that is too low a weak one.

        Args:
            smallest, largest: float64[N, 3], bounds on what each pod that may come to the node counts for. Where
                ``largest`` is infinite the floor never falls along K.
        """

    def dearest_slot(self, weights: CostWeights) -> int:
        """A bound that no slot of any node costs more than."""

"""The seam between a round and a cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import Int64s, NodeTable, Snapshot
from flowcore.model.cost_policy import CostWeights, Utilisation
from flowcore.model.pods import PodClass
from flowcore.model.resources import BANDWIDTH, CPU, MAX_NON_ZERO_REQUEST, MEMORY, PODS

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """How full nodes are, as cost models see it: all nodes of the table in its order unless it says otherwise.

    Arrays may have more dimensions than one before the last: a node at several levels of load. Models read a resource
    of all nodes at a time, so each column of a large array should lie in memory as a whole (``by_column``).

    Attributes:
        capacity: float64[N, 3], allocatable cpu (milli), memory (bytes) and network bandwidth (bits per second).
        taken: float64[N, 3], what pods there count for (resources.non_zero_requests), or what was measured
            as the round began and what pods of the round count for; of bandwidth what pods ask for, or what was
            measured if that is more.
        pods_allowed: float64[N], allocatable pods.
        pods: float64[N], pods there.
    """

    table: NodeTable
    capacity: Float64s
    taken: Float64s
    pods_allowed: Float64s
    pods: Float64s

    @classmethod
    def of(cls, snapshot: Snapshot, utilisation: Utilisation = Utilisation.REQUESTED) -> Load:
        """The load of a snapshot's nodes as they stand.

        Args:
            utilisation: what cpu and memory count as taken; of a node that is not measured it is what pods request.
        """
        columns, pods = [snapshot.resources.index(name) for name in (CPU, MEMORY)], snapshot.resources.index(PODS)
        allocatable, used = snapshot.allocatable, snapshot.used
        capacity, taken = by_column(np.zeros((len(used), 3))), by_column(np.zeros((len(used), 3)))
        capacity[:, :2], taken[:, :2] = allocatable[:, columns], snapshot.non_zero_requested
        measured = snapshot.measured
        if measured is not None and utilisation is not Utilisation.REQUESTED:
            least = taken[:, :2] if utilisation is Utilisation.LARGER else 0.0
            taken[:, :2] = np.where(np.isnan(measured[:, :2]), taken[:, :2], np.maximum(measured[:, :2], least))
        if BANDWIDTH in snapshot.resources:
            column = snapshot.resources.index(BANDWIDTH)
            capacity[:, 2] = allocatable[:, column]
            seen = snapshot.reports.bandwidth(snapshot.table.index)
            if measured is not None:
                seen = np.where(np.isnan(measured[:, 2]), seen, measured[:, 2])
            taken[:, 2] = np.maximum(used[:, column], seen)
        return cls(
            table=snapshot.table,
            capacity=capacity,
            taken=taken,
            pods_allowed=allocatable[:, pods].astype(np.float64),
            pods=used[:, pods].astype(np.float64),
        )

    def at(self, nodes: Int64s, more: Float64s | Int64s | float = 0.0, more_pods: Int64s | int = 0) -> Load:
        """The load of these nodes, which may come twice, each row with so much more there.

        Args:
            more: float64[len(nodes), 3], added to what is taken.
            more_pods: int64[len(nodes)].
        """
        return Load(
            self.table,
            self.capacity.T[:, nodes].T,
            self.taken.T[:, nodes].T + more,
            self.pods_allowed[nodes],
            self.pods[nodes] + more_pods,
        )

    def less(self, size: Float64s) -> Load:
        """The load with one pod of a size, float64[3], less on each node."""
        return replace(self, taken=self.taken - size, pods=self.pods - 1)


def by_column(values: Float64s) -> Float64s:
    """The same values, each column as a whole."""
    return np.asfortranarray(values)


def counted_amounts(
    pod_class: PodClass,
    foreseen: tuple[int, int] | None = None,
    utilisation: Utilisation = Utilisation.REQUESTED,
) -> Float64s:
    """float64[3]: what a pod counts for, in the columns of ``Load.taken``.

    Args:
        foreseen: cpu (milli-cores) and memory (bytes) that it is expected to use; None: unknown, so its requests count.
    """
    bandwidth = min(dict(pod_class.requests).get(BANDWIDTH, 0), MAX_NON_ZERO_REQUEST)
    requested = np.array([*pod_class.non_zero_requests, bandwidth], dtype=np.float64)
    if foreseen is None or utilisation is Utilisation.REQUESTED:
        return requested
    used = np.minimum(np.array([*foreseen, bandwidth], dtype=np.float64), MAX_NON_ZERO_REQUEST)
    return np.maximum(used, requested) if utilisation is Utilisation.LARGER else used


@runtime_checkable
class BoundedArcs(Protocol):
    """What a cost model may have beside a CostModel's methods: else nothing is known of what moves for gain save."""

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:
        """No arc of a pod of a size, float64[3], is below the first or above the second, whatever the load."""


@runtime_checkable
class CostModel(Protocol):
    """Prices placements: costs are integers, 1000 for one whole node's utilisation.

    What a pod costs has two parts. The arc from its class to the node is a constant, priced once as the round begins.
    The node itself has a potential, a convex function of all that is on it, and each pod pays the increase. What
    pods prefer is no matter of models: the round adds it to the arc (``preferences``). Everything follows from the
    arguments: equal ones give equal costs.
    """

    @property
    def name(self) -> str:
        """As a policy's ``cost.model`` names it."""

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:
        """int64[N], positive: what a pod of the class pays on each node beside the increase of its potential.

        Args:
            size: float64[3], what one pod counts for, in the columns of ``Load.taken``.
            load: of all nodes of the table in its order, as the round begins.
        """

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[...]: potential of nodes with such a load; convex, and never falling as the load grows.

        Args:
            load: of any nodes, in any shape: a node's potential depends on its own entry alone.
            unit: float64[3], positive: what a pod of mean size counts for, in the columns of ``Load.taken``.
            weights: ``least_requested`` and ``balance`` are the policy's; the others are not to be read.
        """

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[..., 4]: slopes of the potential along cpu, memory, bandwidth and number of pods.

        Lower bounds rest on it: ``potential(b) >= potential(a) + gradient(a) @ (b - a)`` must hold for all loads. Where
        the potential has a kink, any slope between those of its two sides will do.
        """

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4], none negative: how much the potential is at least above its tangents, along the same columns.

        ``potential(b) >= potential(a) + gradient(a) @ (b - a) + curvature(load) @ (b - a)**2 / 2`` must hold for all a
        and b that are no greater than ``load`` in any column. Zeros will do; higher ones make lower bounds better.
        """

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: bounds that no slope is above for this load and all that are no greater in any column.

        Leaving any pod pending costs more than a placement by this bound. Often it is the gradient itself.
        """

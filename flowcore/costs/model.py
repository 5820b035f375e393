"""The seam between a round and a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowcore.model.pods import PodClass
from flowcore.model.policies import CostWeights
from flowcore.model.resources import CPU, MEMORY
from flowcore.model.snapshot import Int64s, NodeTable, Snapshot

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """How full the nodes are, as cost models see it.

    Attributes:
        capacity: float64[N, 2], allocatable cpu (milli) and memory (bytes).
        taken: float64[N, 2], what pods there count for (see snapshot.ASSUMED_CPU).
    """

    table: NodeTable
    capacity: Float64s
    taken: Float64s

    @classmethod
    def of(cls, snapshot: Snapshot, assumed: Int64s) -> Load:
        """The load of a snapshot's nodes with these amounts (int64[N, 2]) counted."""
        columns = [snapshot.resources.index(name) for name in (CPU, MEMORY)]
        capacity = snapshot.allocatable[:, columns].astype(np.float64)
        return cls(snapshot.table, capacity, assumed.astype(np.float64))

    def at(self, nodes: Int64s) -> Load:
        """The load of these nodes only."""
        return Load(self.table, self.capacity[nodes], self.taken[nodes])


class CostModel(Protocol):
    """Prices the arcs of the network; costs are positive integers, 1000 for one whole node's utilisation.

    The cost of a pod on a node is ``arc + slot``: the arc from its class to the node is what the class brings,
    the slot is what the node's other pods of the same round make of it.
    """

    @property
    def name(self) -> str:
        """As a policy's ``cost.model`` names it."""

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:
        """int64[N], positive: cost of the class on each node, less what ``slot_costs`` says of the node.

        A node's arc follows from its own row alone: it is priced anew only when its node changes, and some rows may be
        asked for without the others.

        Args:
            size: float64[2], cpu and memory that one pod counts for.
        """

    def slot_costs(self, load: Load, size: Float64s, levels: Int64s, weights: CostWeights) -> Int64s:
        """int64[N, K]: cost of the slot after ``levels[k]`` other pods of the round, never falling along K.

        Args:
            size: float64[N, 2], what one such pod counts for on each node.
            levels: int64[K], rising.
        """

    def slot_floors(
        self, load: Load, smallest: Float64s, largest: Float64s, levels: Int64s, weights: CostWeights
    ) -> Int64s:
        """int64[N, K]: what no pod pays for the node, arc excluded, after exactly ``levels[k]`` others of the round.

        Lower bounds rest on it: a floor that is too high is a wrong certificate, one that is too low a weak one.

        Args:
            smallest, largest: float64[N, 2], bounds on what each pod that may come to the node counts for. Where
                ``largest`` is infinite the floor never falls along K.
        """

    def dearest_slot(self, weights: CostWeights) -> int:
        """A bound that no slot of any node costs more than."""

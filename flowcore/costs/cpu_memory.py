"""The CPU-memory model: spread by least requested and balance.

Sources: seeds "node selector and node affinity" and "taints and tolerations" (slot costs that rise by one step a pod;
the offset that keeps costs positive), Firmament cpu_cost_model.cc, kube-scheduler's LeastAllocated and
BalancedAllocation scores.

With ``u_cpu``, ``u_mem`` the utilisation of the node and ``room_cpu``, ``room_mem`` its capacity in pods of mean size::

    potential = 1000 * leastRequested * (room_cpu * u_cpu^2 + room_mem * u_mem^2) / 4
              +  500 * balance * max(u_cpu, u_mem)
    arc       = 1000

A pod of mean size pays ``(u_cpu + u_mem) / 2`` of 1000 for the first line, with half of itself counted in: the rising
slots of the seeds; a pod of twice the size pays twice as much. The sum is least where all nodes are equally full. The
second line is paid for what a pod adds to the resource that is used most: pods that need much of one go where the other
one is used.

With both weights at 1 a lone pod pays 10 for each point that kube-scheduler's two scores take off, LeastAllocated and
BalancedAllocation together. For that pod is of mean size, and::

    LeastAllocated     = 100 - 100 * (u_cpu + u_mem) / 2                with the whole pod counted in
    BalancedAllocation =  75 -  25 * (|u_cpu - u_mem| with the pod - without it)
    |u_cpu - u_mem|    = 2 * max(u_cpu, u_mem) - u_cpu - u_mem
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import MOST_SHARE, OMEGA, bend, energy, slope
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass


class CPUMemory:
    """Prices a node by its utilisation of CPU and memory, and by their balance."""

    name: ClassVar[str] = "CPUMemory"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)

    def arc_range(self, size: Float64s, weights: CostWeights) -> tuple[int, int]:  # noqa: ARG002
        """All arcs are equal."""
        return OMEGA, OMEGA

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[...]: potential of nodes with this load."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        total = cpu.cost()
        total += memory.cost()
        total *= weights.least_requested * OMEGA / 2
        if weights.balance:
            total += weights.balance * OMEGA / 2 * np.maximum(cpu.share, memory.share)
        return total

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[..., 4]: slopes of the potential along CPU, memory, bandwidth and number of pods."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        fuller: Bools = cpu.share >= memory.share
        return self._slopes(cpu, memory, weights, (fuller, ~fuller))

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: lower bounds of the curvature. The second line is not bent."""
        bends = np.zeros((*load.pods.shape, 4))
        for column in (0, 1):
            part = _Part.of(load, column, float(unit[column]))
            bent = np.where(part.offered, bend(part.used) / np.maximum(load.capacity[..., column], 1.0), 0.0)
            bends[..., column] = OMEGA / 2 * weights.least_requested / part.unit * bent
        return bends

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: upper bounds of the slopes: both resources count as the fuller one."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        both = np.ones(load.pods.shape, dtype=np.bool_)
        return self._slopes(cpu, memory, weights, (both, both))

    def _slopes(self, cpu: _Part, memory: _Part, weights: CostWeights, fuller: tuple[Bools, Bools]) -> Float64s:
        slopes = np.zeros((*cpu.used.shape, 4))
        for column, (part, decides) in enumerate(zip((cpu, memory), fuller, strict=True)):
            requested = weights.least_requested * np.where(part.offered, slope(part.used), 1.0) / part.unit
            unbalanced = weights.balance * np.where(decides & part.offered, 1.0 / part.least, 0.0)
            slopes[..., column] = OMEGA / 2 * (requested + unbalanced)
        return slopes


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """CPU or memory: the nodes that have it, their capacity in pods of mean size, and the share that is taken.

    A node without it has room for none and counts as empty; each pod there pays for it as for a full one.
    """

    everywhere: bool
    offered: Bools
    room: Float64s
    used: Float64s
    taken: Float64s
    unit: float
    #: The capacity; where a pod of mean size is more than MOST_SHARE of it, a node for which it is no more than that.
    least: Float64s

    @classmethod
    def of(cls, load: Load, column: int, unit: float) -> _Part:
        capacity, taken = load.capacity[..., column], load.taken[..., column]
        offered = capacity > 0
        everywhere = bool(offered.all())
        used = taken / capacity if everywhere else np.where(offered, taken / np.maximum(capacity, 1.0), 0.0)
        return cls(everywhere, offered, capacity / unit, used, taken, unit, np.maximum(capacity, unit / MOST_SHARE))

    @property
    def share(self) -> Float64s:
        """float64[N]: what is taken of the capacity."""
        return self.taken / self.least if self.everywhere else np.where(self.offered, self.taken / self.least, 0.0)

    def cost(self) -> Float64s:
        """float64[N]: cost of the energy of what is used."""
        cost = self.room * energy(self.used)
        return cost if self.everywhere else np.where(self.offered, cost, self.taken / self.unit)

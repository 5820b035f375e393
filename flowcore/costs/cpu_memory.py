"""The CPU-memory model: spread by least requested and balance.

Sources: seeds "node selector and node affinity" and "taints and tolerations" (slot costs that rise by one step a pod;
the offset that keeps costs positive), Firmament cpu_cost_model.cc, kube-scheduler's LeastAllocated and
BalancedAllocation scores.

With ``u_cpu``, ``u_mem`` the utilisation of the node and ``room_cpu``, ``room_mem`` its capacity in pods of mean size::

    potential = 1000 * leastRequested * (room_cpu * u_cpu^2 + room_mem * u_mem^2) / 4
              + 1000 * balance * min(room_cpu, room_mem) * max(u_cpu, u_mem)^2 / 4
    arc       = 1000

A pod of mean size pays ``(u_cpu + u_mem) / 2`` of 1000 for the first line, the rising slots of the seeds, and a pod of
twice the size twice as much. The sum is least where all nodes are equally full. The second line is paid for what a pod
adds to the resource that the node has least of: pods that need much of one go where there is much of it left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, Int64s
from flowcore.costs.model import Float64s, Load
from flowcore.costs.scale import OMEGA, bend, energy, slope
from flowcore.model.cost_policy import CostWeights
from flowcore.model.pods import PodClass


class CPUMemory:
    """Prices a node by its utilisation of CPU and memory, and by their balance."""

    name: ClassVar[str] = "CPUMemory"

    def arc_costs(self, pod_class: PodClass, size: Float64s, load: Load, weights: CostWeights) -> Int64s:  # noqa: ARG002
        """int64[N]: cost of the arc to each node."""
        return np.full(len(load.taken), OMEGA, dtype=np.int64)

    def potential(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[...]: potential of nodes with this load."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        filled = energy(cpu.used), energy(memory.used)
        total = cpu.cost(filled[0])
        total += memory.cost(filled[1])
        total *= weights.least_requested * OMEGA / 2
        if weights.balance:
            fullest = np.maximum(*filled)
            fullest *= _narrower(cpu, memory)
            fullest *= weights.balance * OMEGA / 2
            total += fullest
        return total

    def gradient(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[..., 4]: slopes of the potential along CPU, memory, bandwidth and number of pods."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        fuller = _is_cpu_fuller(cpu, memory)
        return self._slopes(cpu, memory, weights, (fuller, ~fuller))

    def curvature(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: lower bounds of the curvature: that of the first line of the potential."""
        bends = np.zeros((*load.pods.shape, 4))
        for column in (0, 1):
            part = _Part.of(load, column, float(unit[column]))
            bent = np.where(part.offered, bend(part.used) / np.maximum(load.capacity[..., column], 1.0), 0.0)
            bends[..., column] = OMEGA / 2 * weights.least_requested / part.unit * bent
        return bends

    def curvature_from(self, touched: Load, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """``curvature``, for tangents that touch at some loads: the second line is bent along the fuller resource.

        It is never below what it would be if that resource stayed the fuller one.
        """
        bends = self.curvature(load, unit, weights)
        if weights.balance:
            cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
            before = (_Part.of(touched, column, float(unit[column])) for column in (0, 1))
            fuller, narrower = _is_cpu_fuller(*before), _narrower(cpu, memory)
            for column, (part, decides) in enumerate(zip((cpu, memory), (fuller, ~fuller), strict=True)):
                bent = np.where(
                    part.offered & decides, bend(part.used) / np.maximum(load.capacity[..., column], 1.0), 0.0
                )
                share = narrower / np.where(part.room > 0, part.room, np.inf)
                bends[..., column] += OMEGA / 2 * weights.balance / part.unit * share * bent
        return bends

    def steepest(self, load: Load, unit: Float64s, weights: CostWeights) -> Float64s:
        """float64[N, 4]: upper bounds of the slopes: both resources count as the fuller one."""
        cpu, memory = (_Part.of(load, column, float(unit[column])) for column in (0, 1))
        both = np.ones(load.pods.shape, dtype=np.bool_)
        return self._slopes(cpu, memory, weights, (both, both))

    def _slopes(self, cpu: _Part, memory: _Part, weights: CostWeights, fuller: tuple[Bools, Bools]) -> Float64s:
        slopes, narrower = np.zeros((*cpu.used.shape, 4)), _narrower(cpu, memory)
        for column, (part, decides) in enumerate(zip((cpu, memory), fuller, strict=True)):
            share = narrower / np.where(part.room > 0, part.room, np.inf)
            requested = weights.least_requested * np.where(part.offered, slope(part.used), 1.0)
            unbalanced = weights.balance * np.where(decides, share * slope(part.used), 0.0)
            slopes[..., column] = OMEGA / 2 / part.unit * (requested + unbalanced)
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

    @classmethod
    def of(cls, load: Load, column: int, unit: float) -> _Part:
        capacity, taken = load.capacity[..., column], load.taken[..., column]
        offered = capacity > 0
        everywhere = bool(offered.all())
        used = taken / capacity if everywhere else np.where(offered, taken / np.maximum(capacity, 1.0), 0.0)
        return cls(everywhere, offered, capacity / unit, used, taken, unit)

    def cost(self, filled: Float64s) -> Float64s:
        """float64[N]: cost of the energy of what is used."""
        cost = self.room * filled
        return cost if self.everywhere else np.where(self.offered, cost, self.taken / self.unit)


def _narrower(cpu: _Part, memory: _Part) -> Float64s:
    """How many pods of mean size a node has capacity for, by the resources that it has."""
    least = np.minimum(cpu.room, memory.room)
    if cpu.everywhere and memory.everywhere:
        return least
    return np.where(cpu.offered & memory.offered, least, np.maximum(cpu.room, memory.room))


def _is_cpu_fuller(cpu: _Part, memory: _Part) -> Bools:
    fuller: Bools = cpu.used >= memory.used
    return fuller

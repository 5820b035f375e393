"""The potential of a node for pods that are priced alike: those of one cost model and one pair of weights.

A node's cost is a function of what is on it, ``potential(load)``, in whole numbers. A pod pays the increase, so the sum
of what pods pay is the same in whatever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs.model import CostModel, Float64s, Load
from flowcore.model.cost_policy import CostPolicy, CostWeights, Utilisation

#: No pod counts as more than this many pods of mean size.
_MOST_UNITS = 32.0
#: Nor does a node count as more than this.
_MOST_UNITS_OF_NODES = 2.0**20


@dataclass(frozen=True)
class NodePotential:
    """Equal ones price alike.

    Attributes:
        weights: with the weights of preferences at zero.
        unit: what a pod of mean size counts for, in the columns of ``Load.taken``.
        utilisation: what the loads are made of that it is asked about.
    """

    model: CostModel
    weights: CostWeights
    unit: tuple[float, ...]
    utilisation: Utilisation = Utilisation.REQUESTED

    @classmethod
    def of(cls, model: CostModel, cost: CostPolicy, unit: tuple[float, ...]) -> NodePotential:
        """The potential for pods of a policy."""
        none = dict.fromkeys(CostWeights.__struct_fields__, 0)
        weights = CostWeights(
            **none | {"least_requested": cost.weights.least_requested, "balance": cost.weights.balance}
        )
        return cls(model, weights, unit, cost.utilisation)

    @cached_property
    def _unit(self) -> Float64s:
        return np.array(self.unit)

    def exact(self, load: Load) -> Float64s:
        """float64[...]: before rounding."""
        return self.model.potential(load, self._unit, self.weights)

    def values(self, load: Load) -> Int64s:
        """int64[...]: potential of nodes."""
        rounded: Int64s = np.rint(self.exact(load)).astype(np.int64)
        return rounded

    def gradient(self, load: Load) -> Float64s:
        """float64[..., 4]: slopes along cpu, memory, bandwidth and number of pods."""
        return self.model.gradient(load, self._unit, self.weights)

    def curvature(self, load: Load) -> Float64s:
        """float64[N, 4]: how much potentials are at least above their tangents, for loads up to this one."""
        return self.model.curvature(load, self._unit, self.weights)

    def steepest(self, load: Load) -> Float64s:
        """float64[N, 4]: bounds on the slopes for this load and all lesser ones."""
        return self.model.steepest(load, self._unit, self.weights)

    def increase(self, load: Load, size: Float64s, before: Int64s | None = None) -> Int64s:
        """int64[N]: what one more pod pays on nodes with such a load.

        Args:
            size: float64[3] or float64[N, 3], what the pod counts for.
            before: the values as they are, where they are known.
        """
        after = Load(load.table, load.capacity, load.taken + size, load.pods_allowed, load.pods + 1)
        return self.values(after) - (self.values(load) if before is None else before)

    def slots(self, load: Load, size: Float64s, levels: Int64s) -> Int64s:
        """int64[N, K]: what such a pod pays after ``levels[k]`` others of its size; never falling along K.

        Args:
            size: float64[3] or float64[N, 3].
            levels: int64[K], rising.
        """
        contiguous = len(levels) > 1 and int(levels[-1] - levels[0]) == len(levels) - 1
        if contiguous:
            steps = np.diff(self._at(load, size, np.append(levels, levels[-1] + 1)), axis=1)
        else:
            steps = self._at(load, size, levels + 1) - self._at(load, size, levels)
        # The potential is convex before it is rounded: rounding may take one unit off a step.
        rising: Int64s = np.maximum.accumulate(steps, axis=1)
        return rising

    def level_costs(self, load: Load, size: Float64s, widths: Int64s) -> Int64s:
        """int64[N, K]: what pods of such a size pay on average in a row of slot levels; never falling along K.

        Args:
            size: float64[3] or float64[N, 3].
            widths: int64[K], how many pods each level stands for.
        """
        steps = np.diff(self._at(load, size, np.concatenate([[0], np.cumsum(widths)])), axis=1) // widths
        rising: Int64s = np.maximum.accumulate(steps, axis=1)
        return rising

    def _at(self, load: Load, size: Float64s, levels: Int64s) -> Int64s:
        more = levels.astype(np.float64)
        requests = np.asarray(size).T.reshape(3, -1, 1)
        stacked = Load(
            load.table,
            load.capacity[:, np.newaxis],
            np.moveaxis(load.taken.T[:, :, np.newaxis] + more * requests, 0, -1),
            load.pods_allowed[:, np.newaxis],
            load.pods[:, np.newaxis] + more,
        )
        return self.values(stacked)


def mean_size(sizes: Sequence[Float64s], counts: Sequence[int], loads: Iterable[Load]) -> tuple[float, ...]:
    """What a pod of mean size counts for, among pods that count for anything; powers of two where pods are unlike.

    So a pod of mean size pays for a node what it pays where all pods are alike, whatever the sizes of the others.
    Rounding lets prices of one round hold for the next; of pods of one size, such as a lone pod, it is that size. Where
    some pod is far larger than the mean the unit is larger: prices of pods that wait stay above those of placements,
    and sums within int64.

    Args:
        sizes, counts: float64[3] of a pod of each class, and its pods.
        loads: of all nodes, by each utilisation that is asked for.
    """
    if not sizes:
        return (1.0, 1.0, 1.0)
    size, pods = np.array(sizes), np.array(counts, dtype=np.float64)[:, np.newaxis]
    mean = (size * pods).sum(axis=0) / np.maximum(((size > 0) * pods).sum(axis=0), 1.0)
    largest = np.zeros(3)
    for load in loads:
        largest = np.maximum(largest, np.maximum(load.capacity, load.taken).max(axis=0, initial=0.0))
    least = np.maximum(size.max(axis=0) / _MOST_UNITS, largest / _MOST_UNITS_OF_NODES)
    unit = np.maximum(np.maximum(mean, least), 1.0)
    if (size != size[0]).any():
        unit = 2.0 ** np.rint(np.log2(unit))
    # What no pod of the round counts for, none pays for.
    return tuple(float(each) for each in np.where(mean > 0, unit, np.inf))

"""What a unit of each demand is worth to a cluster, by the workload alone: shadow prices of a fluid problem.

Demands arrive in the shares that the list has, worth so many percent of all GPUs. The linear program places as much of
them as it can, in parts: patterns of pods on one GPU (Gilmore and Gomory's columns), with the cpu of all nodes of a
shape. The dual of a demand is what one more pod of it takes from others. Prices are a mean over several loads: nodes
that many need become scarce long before all are full. And in parts nothing is lost as long as what is scarce still
suffices, but pods that come one by one in a drawn order need it kept: so in some loads more of those come that name
their models of GPUs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from flowcore.planning.solvers.linear import LinearProgram, LinearSolution, solve_lp
from harness.errors import BenchError
from harness.shared_gpus.workload import WHOLE, Float64s, Int64s, Workload

#: Of each load its weight, the percentage of all GPUs that the arrived demands ask for, and how many times as many pods
#: as on the list name their models.
_LOADS: Final = ((3, 100, 1.0), (3, 120, 1.0), (1, 100, 1.3), (1, 100, 1.6), (1, 100, 2.0))
#: Amounts of a GPU are counted by this many thousandths: all shares of the trace are multiples.
STEP: Final = 10
LEVELS: Final = WHOLE // STEP + 1
_MOST_STEPS: Final = 80
#: Of a pod without GPUs: what 12 cpus are worth to the objective, in thousandths of a GPU.
_CPU_WORTH: Final = 500 / 12_000


def fill(worth: Float64s, sizes: Int64s) -> tuple[Float64s, Int64s]:
    """The most that demands are worth that fit on one GPU together, for each amount that is left of it.

    Args:
        worth: float64[J], more than 0; sizes: int64[J], in steps.

    Returns:
        float64[LEVELS], and int64[LEVELS] the demand to take there, -1: go one step down.
    """
    best, taken = np.zeros(LEVELS), np.full(LEVELS, -1, dtype=np.int64)
    for level in range(1, LEVELS):
        best[level] = best[level - 1]
        if len(worth):
            with_one = np.where(sizes <= level, worth + best[np.maximum(level - sizes, 0)], -1.0)
            at = int(with_one.argmax())
            if with_one[at] > best[level] + 1e-12:
                best[level], taken[level] = with_one[at], at
    return best, taken


@dataclass(frozen=True, slots=True)
class _Column:
    """Pods that are placed together: on so many GPUs of a node of a shape."""

    shape: int
    gpus: int
    pods: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Fluid:
    """The linear program for one workload, with the columns that were of use so far."""

    workload: Workload
    _columns: dict[_Column, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for at, demand in enumerate(self.workload.demands):
            for place, shape in enumerate(self.workload.shapes):
                if self.workload.allowed[at, place] and demand.gpus <= shape.gpus and demand.cpu <= shape.cpu:
                    self._columns[_Column(place, demand.gpus, ((at, 1),))] = None

    def prices(self, percent: float, named: float = 1.0) -> Float64s:
        """float64[K]: the dual of each demand, in thousandths of a GPU; 0 for one that fits no node.

        Args:
            percent: of all GPUs, what the arriving demands ask for.
            named: how many times as many pods as on the list name models that not all nodes have.
        """
        possible = np.zeros(len(self.workload.demands), dtype=bool)
        possible[[at for column in self._columns for at, _ in column.pods]] = True
        load = self.workload
        shares = load.frequencies * np.where(load.allowed.all(axis=1), 1.0, named)
        arriving = shares * (percent / 100 * load.room / float(shares @ load.asked))
        worth = np.maximum(load.asked, _CPU_WORTH * np.array([demand.cpu for demand in load.demands]))
        return np.where(possible, self._optimum(arriving, worth)[0], 0.0)

    def most(self, arrived: Int64s) -> float:
        """Thousandths of GPUs that no plan for these pods exceeds; int64[A], pods of the list.

        The optimum in parts: it knows all pods from the first on, and leaves out those that fit the others badly.
        """
        counts = np.bincount(self.workload.pods[arrived], minlength=len(self.workload.demands))
        return self._optimum(counts.astype(np.float64), self.workload.asked.astype(np.float64))[1]

    def _optimum(self, arriving: Float64s, worth: Float64s) -> tuple[Float64s, float]:
        """The duals of the demands, and the worth of all that is placed, with all columns that matter.

        Raises:
            BenchError: the columns did not come to an end, so that the optimum is not known.
        """
        shapes = len(self.workload.shapes)
        for _ in range(_MOST_STEPS):
            solution = self._solve(arriving, worth)
            of_gpus, of_cpu, prices = np.split(solution.duals, [shapes, 2 * shapes])
            if not self._add(prices, -of_gpus, -of_cpu / 1000):
                return prices, float(solution.values[-len(arriving) :] @ (worth * arriving))
        raise BenchError(f"no optimum after {_MOST_STEPS} steps")

    def _add(self, worth: Float64s, of_gpus: Float64s, of_cpu: Float64s) -> bool:
        """Adds the best pattern of each shape, where it is worth more than the GPU that it takes."""
        before = len(self._columns)
        demands = self.workload.demands
        for place, shape in enumerate(self.workload.shapes):
            net = np.array([worth[at] - of_cpu[place] * each.cpu for at, each in enumerate(demands)])
            single = np.array([each.gpus == 1 for each in demands]) & self.workload.allowed[:, place] & (net > 1e-9)
            chosen = np.flatnonzero(single)
            if not shape.gpus or not len(chosen):
                continue
            sizes = np.array([max(1, demands[at].thousandths // STEP) for at in chosen])
            best, taken = fill(net[chosen], sizes)
            if best[-1] > of_gpus[place] + 1e-6 * max(1.0, of_gpus[place]):
                pods = Counter[int]()
                level = LEVELS - 1
                while level > 0:
                    at = int(taken[level])
                    level -= 1 if at < 0 else int(sizes[at])
                    if at >= 0:
                        pods[int(chosen[at])] += 1
                self._columns[_Column(place, 1, tuple(sorted(pods.items())))] = None
        return len(self._columns) > before

    def _solve(self, arriving: Float64s, worth: Float64s) -> LinearSolution:
        """Duals: of the GPUs of each shape, of its cpu by the core, of each demand. Last values: parts placed."""
        load, shapes = self.workload, len(self.workload.shapes)
        count = np.bincount(load.shape_of, minlength=shapes)
        entries: list[tuple[int, int, float]] = []
        for at, column in enumerate(self._columns):
            if column.gpus:
                entries.append((column.shape, at, column.gpus))
            cpu = sum(load.demands[demand].cpu * pods for demand, pods in column.pods)
            entries.append((shapes + column.shape, at, cpu / 1000))
            entries += [(2 * shapes + demand, at, pods) for demand, pods in column.pods]
        columns, demands = len(self._columns), len(load.demands)
        entries += [(2 * shapes + at, columns + at, -arriving[at]) for at in range(demands)]
        room = np.concatenate(
            [count * [each.gpus for each in load.shapes], count * [each.cpu / 1000 for each in load.shapes]]
        )
        rows, places, coefficients = (np.array(each) for each in zip(*entries, strict=True))
        solution = solve_lp(
            LinearProgram(
                costs=np.concatenate([np.zeros(columns), -worth * arriving]),
                variable_upper=np.concatenate([np.full(columns, np.inf), np.ones(demands)]),
                row_lower=np.concatenate([np.full(2 * shapes, -np.inf), np.zeros(demands)]),
                row_upper=np.concatenate([room, np.full(demands, np.inf)]),
                rows=rows,
                columns=places,
                coefficients=coefficients.astype(np.float64),
            )
        )
        if solution is None:
            raise BenchError("the linear program has no solution")
        return solution


def mean_prices(workload: Workload) -> Float64s:
    """float64[K]: the mean of each demand's prices over the loads, in thousandths of a GPU."""
    fluid = Fluid(workload)
    weights = [weight for weight, _, _ in _LOADS]
    result: Float64s = np.average(
        [fluid.prices(percent, named) for _, percent, named in _LOADS], axis=0, weights=weights
    )
    return result

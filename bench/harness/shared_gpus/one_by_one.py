"""Pods that arrive one by one, each to the node and the GPU where it costs the least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from harness.shared_gpus.workload import MOST_GPUS, WHOLE, Bools, Float64s, Int64s, Remaining, Workload


class Method(Protocol):
    """What a placement costs, by what is left of its node before and after it."""

    def costs(self, before: Remaining, after: Remaining, shape: int) -> Float64s:
        """float64[C]: of C placements on one node of a shape; ``before`` has one row."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """What became of the pods.

    Attributes:
        percent: float64[A+1], thousandths that have arrived before each pod and after the last, in % of all.
        allocated: float64[A+1], thousandths in use then, in % of all.
        waiting: pods that no node had room for.
    """

    percent: Float64s
    allocated: Float64s
    waiting: int

    def at(self, percent: float) -> float:
        """Allocated, in %, once pods worth so many percent have arrived."""
        return float(self.allocated[min(np.searchsorted(self.percent, percent), len(self.percent) - 1)])


class Placement(NamedTuple):
    """Where a pod is: its node, its demand, its memory in MiB, and its GPUs."""

    node: int
    demand: int
    memory: int
    gpus: tuple[int, ...]


class Cluster:
    """What is left on each node, and what each demand would cost there.

    Attributes:
        cpu, memory: int64[N] milli-cores and MiB; free: int64[N, 8] thousandths of each GPU.
    """

    def __init__(self, workload: Workload, method: Method) -> None:
        """An empty cluster."""
        self._workload, self._method = workload, method
        shapes = workload.shapes
        self.cpu = np.array([shapes[at].cpu for at in workload.shape_of], dtype=np.int64)
        self.memory = workload.memory.copy()
        self.free = np.zeros((len(self.cpu), MOST_GPUS), dtype=np.int64)
        for node, at in enumerate(workload.shape_of):
            self.free[node, : shapes[at].gpus] = WHOLE
        demands = workload.demands
        self._gpus = np.array([demand.gpus for demand in demands])
        self._thousandths = np.array([demand.thousandths for demand in demands])
        self._shares = (self._thousandths > 0) & (self._thousandths < WHOLE)
        self._costs = np.zeros((len(workload.demands), len(self.cpu)))
        self._gpu = np.zeros(self._costs.shape, dtype=np.int8)
        first = {int(at): node for node, at in reversed(list(enumerate(workload.shape_of)))}
        for at, node in first.items():
            self._look_at(node)
            same = workload.shape_of == at
            self._costs[:, same], self._gpu[:, same] = self._costs[:, [node]], self._gpu[:, [node]]

    def place(self, demand: int, memory: int) -> Placement | None:
        """Places one pod, on the first of the nodes where it costs the least; None: no node has room."""
        costs = np.where(self.memory >= memory, self._costs[demand], np.inf)
        node = int(costs.argmin())
        if costs[node] == np.inf:
            return None
        asked = self._workload.demands[demand]
        gpus = [int(self._gpu[demand, node])] if asked.thousandths < WHOLE else np.flatnonzero(self.free[node] == WHOLE)
        placement = Placement(node, demand, memory, tuple(int(gpu) for gpu in gpus[: asked.gpus]))
        self._take(placement, 1)
        return placement

    def remove(self, placement: Placement) -> None:
        """Gives back what a pod has."""
        self._take(placement, -1)

    def _take(self, placement: Placement, sign: int) -> None:
        asked = self._workload.demands[placement.demand]
        self.cpu[placement.node] -= sign * asked.cpu
        self.memory[placement.node] -= sign * placement.memory
        self.free[placement.node, list(placement.gpus)] -= sign * asked.thousandths
        self._look_at(placement.node)

    def _look_at(self, node: int) -> None:
        """Writes what each demand costs on a node, and which GPU it would have."""
        free, cpu = self.free[node], int(self.cpu[node])
        shape = int(self._workload.shape_of[node])
        whole = free == WHOLE
        possible = np.zeros((len(self._workload.cpu), MOST_GPUS), dtype=bool)
        # Of GPUs that have the same amount left the first one stands for all.
        different = np.array([left not in free[:gpu] for gpu, left in enumerate(free)])
        possible[self._shares] = different & (free >= self._thousandths[self._shares, np.newaxis])
        possible[~self._shares, 0] = self._gpus[~self._shares] <= whole.sum()
        possible &= (self._workload.allowed[:, shape] & (self._workload.cpu <= cpu))[:, np.newaxis]
        demands, gpus = possible.nonzero()
        self._costs[:, node] = np.inf
        if not len(demands):
            return
        taken = whole & (whole.cumsum() <= self._gpus[demands, np.newaxis]) & ~self._shares[demands, np.newaxis]
        after = np.where(taken, 0, free)
        shares = self._shares[demands].nonzero()[0]
        after[shares, gpus[shares]] -= self._thousandths[demands[shares]]
        before = Remaining(np.array([cpu]), free[np.newaxis])
        costs = self._method.costs(before, Remaining(cpu - self._workload.cpu[demands], after), shape)
        order = np.lexsort((costs, demands))
        first = order[np.unique(demands[order], return_index=True)[1]]
        self._costs[demands[first], node], self._gpu[demands[first], node] = costs[first], gpus[first]


def place_one_by_one(workload: Workload, method: Method, arrivals: Int64s) -> Placed:
    """Places pods of the workload's list in this order. Nothing ends, so that one that finds no room never will."""
    cluster = Cluster(workload, method)
    came = [cluster.place(int(workload.pods[pod]), int(workload.pod_memory[pod])) is not None for pod in arrivals]
    return curve(workload, arrivals, np.array(came, dtype=bool))


def curve(workload: Workload, arrivals: Int64s, came: Bools) -> Placed:
    """How much was in use as pods arrived; bool[A]: which of them have a node."""
    asked = workload.asked[workload.pods[arrivals]]
    percent, allocated = (
        np.concatenate([[0.0], np.cumsum(each)]) * (100.0 / workload.room) for each in (asked, asked * came)
    )
    return Placed(percent, allocated, int((~came).sum()))

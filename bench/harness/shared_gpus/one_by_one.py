"""Pods that arrive one by one, each to the node and the GPU where it costs the least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.shared_gpus.workload import MOST_GPUS, WHOLE, Float64s, Int64s, Remaining, Workload


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
        self._costs = np.zeros((len(workload.demands), len(self.cpu)))
        self._gpu = np.zeros(self._costs.shape, dtype=np.int8)
        first = {int(at): node for node, at in reversed(list(enumerate(workload.shape_of)))}
        for at, node in first.items():
            self._look_at(node)
            same = workload.shape_of == at
            self._costs[:, same], self._gpu[:, same] = self._costs[:, [node]], self._gpu[:, [node]]

    def place(self, demand: int, memory: int) -> bool:
        """Places one pod, on the first of the nodes where it costs the least; False: no node has room."""
        costs = np.where(self.memory >= memory, self._costs[demand], np.inf)
        node = int(costs.argmin())
        if costs[node] == np.inf:
            return False
        asked = self._workload.demands[demand]
        self.cpu[node] -= asked.cpu
        self.memory[node] -= memory
        if 0 < asked.thousandths < WHOLE:
            self.free[node, self._gpu[demand, node]] -= asked.thousandths
        elif asked.gpus:
            self.free[node] = _without_whole(self.free[node], asked.gpus)
        self._look_at(node)
        return True

    def _look_at(self, node: int) -> None:
        """Writes what each demand costs on a node, and which GPU it would have."""
        free, cpu = self.free[node], int(self.cpu[node])
        shape = int(self._workload.shape_of[node])
        demands, gpus, frees, cpus = [], [], [], []
        whole = int((free == WHOLE).sum())
        for at, demand in enumerate(self._workload.demands):
            if demand.cpu > cpu or not self._workload.allowed[at, shape]:
                continue
            if 0 < demand.thousandths < WHOLE:
                for gpu in _different(free, demand.thousandths):
                    after = free.copy()
                    after[gpu] -= demand.thousandths
                    demands.append(at), gpus.append(gpu), frees.append(after), cpus.append(cpu - demand.cpu)
            elif demand.gpus <= whole:
                after = _without_whole(free, demand.gpus)
                demands.append(at), gpus.append(0), frees.append(after), cpus.append(cpu - demand.cpu)
        self._costs[:, node] = np.inf
        if not demands:
            return
        before = Remaining(np.array([cpu]), free[np.newaxis])
        costs = self._method.costs(before, Remaining(np.array(cpus), np.array(frees)), shape)
        for at, gpu, cost in zip(demands, gpus, costs.tolist(), strict=True):
            if cost < self._costs[at, node]:
                self._costs[at, node], self._gpu[at, node] = cost, gpu


def place_one_by_one(workload: Workload, method: Method, arrivals: Int64s) -> Placed:
    """Places pods of the workload's list in this order. Nothing ends, so that one that finds no room never will."""
    cluster = Cluster(workload, method)
    asked = workload.asked[workload.pods[arrivals]]
    came = np.array(
        [cluster.place(int(workload.pods[pod]), int(workload.pod_memory[pod])) for pod in arrivals], dtype=bool
    )
    percent, allocated = (
        np.concatenate([[0.0], np.cumsum(each)]) * (100.0 / workload.room) for each in (asked, asked * came)
    )
    return Placed(percent, allocated, int((~came).sum()))


def _different(free: Int64s, least: int) -> list[int]:
    """The first GPU of each amount that is left, where enough is left."""
    seen: dict[int, int] = {}
    for gpu, left in enumerate(free.tolist()):
        if left >= least:
            seen.setdefault(left, gpu)
    return list(seen.values())


def _without_whole(free: Int64s, count: int) -> Int64s:
    after = free.copy()
    after[np.flatnonzero(free == WHOLE)[:count]] = 0
    return after

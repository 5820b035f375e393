"""Nodes with GPUs in thousandths, and pods that ask for some of one GPU, or for whole ones, from the openb trace."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]

WHOLE: Final = 1000
#: GPUs of the largest node.
MOST_GPUS: Final = 8


class Demand(NamedTuple):
    """What a pod asks for: milli-cores, GPUs, thousandths of each, models of GPUs that will do (): all)."""

    cpu: int
    gpus: int
    thousandths: int
    models: tuple[str, ...]


class Shape(NamedTuple):
    """Nodes of one shape: milli-cores, GPUs and their model."""

    cpu: int
    gpus: int
    model: str


class Remaining(NamedTuple):
    """What is left on C nodes of one shape: int64[C] milli-cores, int64[C, 8] thousandths of each GPU, 0: no GPU."""

    cpu: Int64s
    free: Int64s


@dataclass(frozen=True)
class Workload:
    """A cluster and a list of pods.

    Attributes:
        shapes: S shapes of nodes.
        shape_of: int64[N], of each node.
        memory: int64[N], MiB of each node.
        demands: K distinct demands of pods.
        pods: int64[P], the demand of each pod of the list; pod_memory: int64[P], MiB.
    """

    shapes: tuple[Shape, ...]
    shape_of: Int64s
    memory: Int64s
    demands: tuple[Demand, ...]
    pods: Int64s
    pod_memory: Int64s

    @cached_property
    def room(self) -> int:
        """Thousandths of all GPUs."""
        return int(WHOLE * np.array([shape.gpus for shape in self.shapes])[self.shape_of].sum())

    @cached_property
    def asked(self) -> Int64s:
        """int64[K]: thousandths that a demand asks for in all."""
        return np.array([demand.gpus * demand.thousandths for demand in self.demands], dtype=np.int64)

    @cached_property
    def cpu(self) -> Int64s:
        """int64[K]: milli-cores that a demand asks for."""
        return np.array([demand.cpu for demand in self.demands], dtype=np.int64)

    @cached_property
    def allowed(self) -> Bools:
        """bool[K, S]: whether nodes of a shape have a model that will do."""
        return np.array(
            [[not demand.models or shape.model in demand.models for shape in self.shapes] for demand in self.demands]
        )

    @cached_property
    def frequencies(self) -> Float64s:
        """float64[K]: which share of the list's pods have a demand."""
        return np.bincount(self.pods, minlength=len(self.demands)) / len(self.pods)

    def arrived(self, arrivals: Int64s, percent: float) -> Int64s:
        """The first of these pods, as many as ask for so many percent of all GPUs."""
        asked = np.cumsum(self.asked[self.pods[arrivals]]) * (100 / self.room)
        return arrivals[: np.searchsorted(asked, percent) + 1]

    def arrivals(self, seed: int, percent: float) -> Int64s:
        """int64[A]: pods of the list, in a drawn order, that ask for so many percent of all GPUs.

        As the authors draw them: pods are left out at random, or drawn again at the end.
        """
        random = np.random.default_rng(seed)
        order = random.permutation(len(self.pods)).tolist()
        total, wanted = int(self.asked[self.pods].sum()), percent / 100 * self.room
        while total > wanted:
            total -= int(self.asked[self.pods[order.pop(random.integers(len(order)))]])
        while True:
            pod = int(random.integers(len(self.pods)))
            if total + self.asked[self.pods[pod]] > wanted:
                return np.array(order, dtype=np.int64)
            order.append(pod)
            total += int(self.asked[self.pods[pod]])


def read_workload(nodes: Path, pods: Path, *, gpu_nodes_only: bool) -> Workload:
    """Reads the trace.

    Args:
        gpu_nodes_only: nodes without GPUs are left out, as the authors do.
    """
    rows = [row for row in _rows(nodes) if not gpu_nodes_only or int(row["gpu"])]
    shapes = [Shape(int(row["cpu_milli"]), int(row["gpu"]), row["model"]) for row in rows]
    demands = [_demand(row) for row in _rows(pods)]
    return Workload(
        shapes=tuple(Counter(shapes)),
        shape_of=_places(shapes),
        memory=np.array([int(row["memory_mib"]) for row in rows], dtype=np.int64),
        demands=tuple(Counter(demands)),
        pods=_places(demands),
        pod_memory=np.array([int(row["memory_mib"]) for row in _rows(pods)], dtype=np.int64),
    )


def _demand(row: dict[str, str]) -> Demand:
    gpus = int(row["num_gpu"])
    models = tuple(model for model in (row.get("gpu_spec") or "").split("|") if model)
    return Demand(int(row["cpu_milli"]), gpus, int(row["gpu_milli"]) if gpus else 0, models)


def _places(values: Sequence[tuple[object, ...]]) -> Int64s:
    """Of each value its place among the distinct ones."""
    place = {value: at for at, value in enumerate(Counter(values))}
    return np.array([place[value] for value in values], dtype=np.int64)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))

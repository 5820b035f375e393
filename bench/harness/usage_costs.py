"""What samples cost: CPU time of a round with and without them, of what comes before it, and memory."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Snapshot
from flowcore.cluster.arrays.tables import ClusterTables
from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.usage_samples import UsageStore
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import CPU, MEMORY
from flowcore.model.usage import MeasuredLoad, UsageClass, UsageSample
from flowcore.planning.round import run_round
from harness.instances import Size, make

_NOW = 1_700_000_000.0
_WINDOW = 30.0
#: As the operator keeps them unless it is told otherwise.
SAMPLES = 20
_RUNNING = 150_000


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one thing, the median of several times."""

    what: str
    seconds: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the samples of many pods, in bytes: the arrays, and all that came with the store (names of pods left out)."""

    pods: int
    samples: int
    arrays: int
    everything: int


class _Poll:
    """The store of a cluster, and one poll after the other."""

    def __init__(self, snapshot: Snapshot, classes: int, samples: int) -> None:
        self.store, self._index, self._polls = UsageStore(samples), snapshot.table.index, 0
        random = np.random.default_rng(1)
        kinds = [UsageClass("bench", (f"image-{at}",)) for at in range(classes)]
        self._class_of = {f"bench/running-{at}": kinds[at % classes] for at in range(_RUNNING)}
        self.kinds = kinds
        columns = [snapshot.resources.index(name) for name in (CPU, MEMORY)]
        used = snapshot.allocatable[:, columns] * random.uniform(0.1, 0.9, (len(self._index), 2))
        self._nodes = dict(zip(self._index, used.astype(np.int64).tolist(), strict=True))
        self._cpus = random.integers(50, 4000, _RUNNING).tolist()

    def take(self) -> None:
        """Another poll."""
        self._polls += 1
        now = _NOW + _WINDOW * self._polls
        nodes = {name: UsageSample(now, _WINDOW, cpu, memory) for name, (cpu, memory) in self._nodes.items()}
        pods = {key: UsageSample(now, _WINDOW, cpu, 2**30) for key, cpu in zip(self._class_of, self._cpus, strict=True)}
        self.store.put_nodes(nodes, self._index)
        self.store.put_pods(pods, self._class_of.get)

    def loads(self) -> list[MeasuredLoad]:
        """Of all nodes."""
        now = _NOW + _WINDOW * self._polls
        return [self.store.measured_load(name, (), now) for name in self._index]


def rounds(size: Size, times: int) -> list[Cost]:
    """CPU time by requests and by use, of a round that remembers nothing, and of each step before it."""
    plain, poll = make(size).snapshot, _Poll(snapshot=make(size).snapshot, classes=size.classes, samples=SAMPLES)
    tables = ClusterTables(plain.table)
    found = [
        _measured(f"a poll of {len(plain.table.nodes):,} nodes and {_RUNNING:,} pods taken over", poll.take, times)
    ]
    loads = poll.loads()

    def foresee() -> None:
        poll.store.refresh()  # forgets what was foreseen
        for kind in poll.kinds:
            poll.store.foreseen(kind)

    found += [
        _measured(f"what {len(poll.kinds):,} classes are foreseen to use", foresee, times),
        _measured("loads of all nodes", poll.loads, times),
        _measured("the worker's tables take them over", lambda: tables.apply(ClusterChanges(measured=loads)), times),
    ]
    rows = np.array([[np.nan if each is None else each for each in load.amounts] for load in loads])
    kind_of = {each: poll.kinds[at % len(poll.kinds)] for at, each in enumerate({p.pod_class for p in plain.pending})}
    by_use = replace(
        plain,
        measured=rows,
        pending=tuple(
            msgspec.structs.replace(pod, foreseen=poll.store.foreseen(kind_of[pod.pod_class])) for pod in plain.pending
        ),
    )
    for utilisation in Utilisation:
        policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(utilisation=utilisation))}
        snapshot = plain if utilisation is Utilisation.REQUESTED else by_use
        result = run_round(snapshot, policies, steps=1)
        note = f"{len(result.placements):,} placed, {len(result.unplaced):,} left"
        plan: Callable[[], object] = lambda given=snapshot, under=policies: run_round(given, under, steps=1)  # noqa: E731
        found.append(replace(_measured(f"a round, one step, {utilisation}", plan, times), note=note))
    return found


def memory(samples: int) -> Memory:
    """Of a store that is told so many polls."""
    snapshot = make(Size(100, 1, 1)).snapshot
    poll = _Poll(snapshot, classes=2_000, samples=samples)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        poll.store = UsageStore(samples)
        poll.take()
        gc.collect()
        everything = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    return Memory(_RUNNING, samples, poll.store.nbytes, everything)


def _measured(what: str, run: Callable[[], object], times: int) -> Cost:
    seconds = []
    for _ in range(times):
        before = time.process_time()
        run()
        seconds.append(time.process_time() - before)
    return Cost(what, statistics.median(seconds))

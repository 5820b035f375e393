"""Pods with simulated use: what nodes really use is known here, and rounds know samples of it.

- Pods of one request are of three kinds. A kind uses a part of what it requests: seven of ten
  kinds 0.2 to 0.6 of the cpu, the others 1.2 to 2 times as much; of the memory 0.3 to 0.9. Single pods differ from
  their kind by about a fifth for as long as they run, and by a tenth more from one tick to the next.
- A tick has 15 seconds: pods end, pods arrive in their order, a round is planned. How long a pod runs is drawn,
  exponentially. All draws are fixed by the seed, so every row has the same pods with the same use and run time.
- Every fourth tick samples of the last minute come in, of nodes and of pods that ran all of it; they show one tick
  later, as with metrics-server.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod
from flowcore.cluster.assembly import build_snapshot
from flowcore.cluster.usage_samples import PodOnNode, UsageStore
from flowcore.model.cost_policy import CostPolicy, Utilisation
from flowcore.model.nodes import Node
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import CPU
from flowcore.model.usage import UsageClass, UsageSample
from flowcore.planning.round import RoundResult, run_round

_TICK = 15.0
_TICKS_OF_A_SAMPLE = 4
_KINDS = 3
_HOT = 0.3


@dataclass(frozen=True, slots=True)
class Row:
    """One run.

    Attributes:
        placed: pods that got a node.
        busiest: mean over ticks of the highest share of its cpu that any node uses.
    """

    placed: int
    busiest: float


@dataclass(slots=True)
class _Running:
    pod: PendingPod
    node: str
    began: int
    ends: int
    #: Cpu (milli-cores) in each of the last ticks.
    used: list[float] = field(default_factory=list)


class _Truth:
    """What pods use and how long they run."""

    def __init__(self, seed: int, ticks: float) -> None:
        self._seed, self._ticks = seed, ticks
        self._kinds: dict[str, UsageClass] = {}
        #: Of the requested cpu, by pod.
        self._shares: dict[str, float] = {}

    def kind(self, pod: PendingPod) -> UsageClass:
        """One of the kinds of pods of its request."""
        found = self._kinds.get(pod.key)
        if found is None:
            number = random.Random(f"{self._seed} {pod.key}").randrange(_KINDS)
            found = self._kinds[pod.key] = UsageClass("openb", (f"kind-{number}",), pod.pod_class.requests)
        return found

    def runs(self, pod: PendingPod) -> int:
        """Ticks."""
        return 1 + int(random.Random(f"{self._seed} runs {pod.key}").expovariate(1 / self._ticks))

    def cpu(self, pod: PendingPod, age: int) -> float:
        """Milli-cores in a tick of its life."""
        share = self._shares.get(pod.key)
        if share is None:
            kind = random.Random(f"{self._seed} {self.kind(pod)}")
            of_kind = kind.uniform(1.2, 2.0) if kind.random() < _HOT else kind.uniform(0.2, 0.6)
            share = of_kind * random.Random(f"{self._seed} {pod.key}").lognormvariate(0, 0.2)
            self._shares[pod.key] = share
        now = random.Random(f"{self._seed} {pod.key} {age}").lognormvariate(0, 0.1)
        return pod.pod_class.non_zero_requests[0] * share * now

    def memory(self, pod: PendingPod) -> int:
        """Bytes."""
        kind = random.Random(f"{self._seed} memory {self.kind(pod)}")
        return int(pod.pod_class.non_zero_requests[1] * kind.uniform(0.3, 0.9))


def simulate(
    pods: Sequence[PendingPod],
    nodes: Sequence[Node],
    utilisation: Utilisation,
    *,
    arrivals: int,
    ticks: float,
    seed: int,
    samples_alone: bool = False,
) -> Row:
    """All pods arrive, in rounds.

    Args:
        arrivals: pods in a tick.
        ticks: how long a pod runs in the mean.
        samples_alone: a node's use is its newest sample, and nothing is foreseen.
    """
    run = _Run(nodes, utilisation, _Truth(seed, ticks), samples_alone=samples_alone)
    for tick, first in enumerate(range(0, len(pods), arrivals)):
        run.tick(
            tick,
            tuple(msgspec.structs.replace(pod, created=(tick + 1) * _TICK) for pod in pods[first : first + arrivals]),
        )
    return run.row()


class _Run:
    def __init__(
        self,
        nodes: Sequence[Node],
        utilisation: Utilisation,
        truth: _Truth,
        *,
        samples_alone: bool,
    ) -> None:
        self._table, self._utilisation = NodeTable.of(nodes), utilisation
        self._policies = {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(utilisation=utilisation))}
        self._truth, self._samples_alone = truth, samples_alone
        self._store = UsageStore(samples=5)
        self._cores = np.array([dict(node.allocatable)[CPU] for node in nodes], dtype=np.float64)
        self._running: dict[str, _Running] = {}
        self._waiting: tuple[PendingPod, ...] = ()
        self._to_come: Callable[[], None] | None = None
        self._placed = 0
        self._busiest: list[float] = []

    def tick(self, tick: int, arrived: tuple[PendingPod, ...]) -> None:
        now = (tick + 1) * _TICK
        for key in [key for key, each in self._running.items() if each.ends <= tick]:
            del self._running[key]
            self._store.drop_pod(key)
        result = self._plan((*self._waiting, *arrived), now)
        for placement in result.placements:
            pod = placement.pod
            self._running[pod.key] = _Running(pod, placement.node, tick, tick + self._truth.runs(pod))
        self._placed += len(result.placements)
        self._waiting = tuple(sorted((each.pod for each in result.unplaced), key=lambda pod: (pod.created, pod.key)))
        self._use(tick)
        if self._to_come is not None:
            self._to_come()
            self._to_come = None
        if (tick + 1) % _TICKS_OF_A_SAMPLE == 0:
            self._to_come = self._samples(now)

    def row(self) -> Row:
        return Row(self._placed, float(np.mean(self._busiest)))

    def _plan(self, pending: tuple[PendingPod, ...], now: float) -> RoundResult:
        by_use = self._utilisation is not Utilisation.REQUESTED
        if by_use and not self._samples_alone:
            pending = tuple(
                msgspec.structs.replace(pod, foreseen=self._store.foreseen(self._truth.kind(pod))) for pod in pending
            )
        running = [(each.node, (*each.pod.pod_class.requests, ("pods", 1)), ()) for each in self._running.values()]
        snapshot = build_snapshot(generation=1, now=now, table=self._table, running=running, pending=pending)
        if by_use:
            snapshot = replace(snapshot, measured=self._measured(now))
        return run_round(snapshot, self._policies)

    def _measured(self, now: float) -> np.ndarray:
        arrivals: dict[str, list[PodOnNode]] = defaultdict(list)
        for key, each in () if self._samples_alone else self._running.items():
            estimate = self._store.foreseen(self._truth.kind(each.pod))
            asked = each.pod.pod_class.non_zero_requests
            arrivals[each.node].append(PodOnNode(key, (each.began + 1) * _TICK, estimate or asked))
        loads = [self._store.measured_load(node.name, arrivals[node.name], now) for node in self._table.nodes]
        return np.array([[np.nan if each is None else each for each in load.amounts] for load in loads])

    def _use(self, tick: int) -> None:
        cpu = np.zeros(len(self._cores))
        for each in self._running.values():
            used = self._truth.cpu(each.pod, tick - each.began)
            each.used.append(used)
            cpu[self._table.index[each.node]] += used
        self._busiest.append(float((cpu / self._cores).max()))

    def _samples(self, now: float) -> Callable[[], None]:
        """What the last minute's samples are, to be put in when they show."""
        nodes = {node.name: [0.0, 0.0] for node in self._table.nodes}
        pods = {}
        window = _TICK * _TICKS_OF_A_SAMPLE
        for key, each in self._running.items():
            last = each.used[-_TICKS_OF_A_SAMPLE:]
            memory = self._truth.memory(each.pod)
            nodes[each.node][0] += sum(last) / _TICKS_OF_A_SAMPLE
            nodes[each.node][1] += memory * len(last) / _TICKS_OF_A_SAMPLE
            if len(last) == _TICKS_OF_A_SAMPLE:
                pods[key] = UsageSample(now, window, int(sum(last) / len(last)), memory)
        of_nodes = {name: UsageSample(now, window, int(cpu), int(memory)) for name, (cpu, memory) in nodes.items()}
        classes = {key: self._truth.kind(self._running[key].pod) for key in pods}

        def show() -> None:
            self._store.put_nodes(of_nodes, self._table.index)
            self._store.put_pods({key: each for key, each in pods.items() if key in self._running}, classes.get)
            self._store.refresh()

        return show

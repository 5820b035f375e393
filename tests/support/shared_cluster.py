"""A small cluster that queues share, round by round: pods come, are planned, run, end, and leave when evicted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.resources import CPU, Amounts
from flowcore.model.running_pods import EvictionKind, RunningPod, RunningPods
from flowcore.planning.problem.result import Eviction
from flowcore.planning.round import RoundResult, run_round


@dataclass(frozen=True, slots=True)
class Job:
    """What an owner wants to run: one pod, and another one like it whenever that is evicted.

    Attributes:
        runs: seconds of work; an evicted pod's replacement begins anew.
    """

    name: str
    queue: str
    pod_class: PodClass
    runs: float


class SharedCluster:
    """See the module.

    Attributes:
        now: seconds since the epoch.
        waiting: pods without a node; running: those with one, each with its job.
        evictions: of all rounds, with their time.
        below_guarantee: those after which the victim's queue had less CPU than its guarantee at the end of the round.
    """

    def __init__(self, queues: list[Queue], nodes: int, allocatable: Amounts) -> None:
        """``allocatable``: of each node."""
        self.queues, self.now = queues, 10_000.0
        self._table = NodeTable.of(Node(f"n{at}", allocatable=allocatable) for at in range(nodes))
        self.waiting: dict[str, tuple[Job, PendingPod]] = {}
        self.running: dict[str, tuple[Job, RunningPod, float]] = {}
        self.evictions: list[tuple[float, Eviction]] = []
        self.below_guarantee: list[Eviction] = []
        self._numbers: Counter[str] = Counter()

    def submit(self, job: Job) -> None:
        """A pod of the job waits."""
        self._numbers[job.name] += 1
        name = f"{job.name}.{self._numbers[job.name]}"
        pod = PendingPod(f"default/{name}", name, job.pod_class, BUILT_IN.name, created=self.now, queue=job.queue)
        self.waiting[pod.key] = job, pod

    def snapshot(self) -> Snapshot:
        """The cluster as a round sees it."""
        sums: dict[str, Counter[str]] = {}
        for _, pod, _ in self.running.values():
            sums.setdefault(pod.queue, Counter()).update({**dict(pod.usage), "pods": 1})
        state = QueueState(
            tuple(self.queues), {name: QueueUsage(tuple(sorted(total.items()))) for name, total in sums.items()}
        )
        pods = tuple(pod for _, pod, _ in self.running.values())
        found = build_snapshot(
            generation=1,
            now=self.now,
            table=self._table,
            running=[(pod.node, pod.usage, ()) for pod in pods],
            pending=tuple(pod for _, pod in self.waiting.values()),
        )
        return replace(found, queues=state, running=RunningPods(pods))

    def round(self) -> RoundResult:
        """Plans, and carries the plan out: who is evicted waits again at once."""
        result = run_round(self.snapshot(), steps=4)
        for each in result.evictions:
            self._evict(each)
        for placement in result.placements:
            job, pod = self.waiting.pop(placement.pod.key)
            running = RunningPod(
                pod.key,
                pod.uid,
                placement.node,
                pod.pod_class,
                pod.pod_class.requests,
                started=self.now,
                queue=pod.queue,
            )
            self.running[pod.key] = job, running, self.now + job.runs
        guarantees = {queue.name: dict(queue.guarantee).get("cpu", 0) for queue in self.queues}
        self.below_guarantee += [
            each
            for each in result.evictions
            if each.kind is EvictionKind.RECLAIM and self.used(each.pod.queue) < guarantees[each.pod.queue]
        ]
        return result

    def _evict(self, eviction: Eviction) -> None:
        job, _, _ = self.running.pop(eviction.pod.key)
        self.evictions.append((self.now, eviction))
        self.submit(job)

    def used(self, queue: str) -> int:
        """How much CPU the pods of a queue hold."""
        return sum(dict(pod.usage).get(CPU, 0) for _, pod, _ in self.running.values() if pod.queue == queue)

    def pass_time(self, seconds: float) -> None:
        """Time passes; pods that are done are gone."""
        self.now += seconds
        self.running = {key: each for key, each in self.running.items() if each[2] > self.now}

"""Pods that come and end, placed by rounds of the engine or in kube-scheduler's order: who waits, and for how long.

`KubeSchedulerOrder` is that order with its filters and scores, written anew in plain loops that share nothing with the
engine: not the program. Source: Kubernetes 1.36.3, pkg/scheduler. The queue is sorted by priority and by when a pod
came (plugins/queuesort; a pod that failed comes again with the time of its last attempt, which keeps the order), a pod
that does not fit lets later ones pass, and of the nodes that fit it takes the best by LeastAllocated and by
BalancedAllocation (plugins/noderesources), the first of equals. All nodes are scored.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.resources import PODS
from flowcore.planning.round import run_round
from harness.rechecks import Checker, Int64s, Placed

#: A placer says which pods of a snapshot get which nodes, by position.
Placer = Callable[[Snapshot], list[Placed]]
_MOST, _MILLI, _GI = 100, 1000, 1024**3
#: When simulations begin, seconds since the epoch: 0 means unknown.
_BEGIN = 1e6


class KubeSchedulerOrder:
    """The rule. It keeps what it looked up of the nodes."""

    def __init__(self) -> None:
        self._checker: Checker | None = None

    def __call__(self, snapshot: Snapshot) -> list[Placed]:
        """Places pods one after the other."""
        checker = self._checker
        if checker is None or checker.snapshot.table is not snapshot.table:
            checker = self._checker = Checker(snapshot)
        free = snapshot.free.copy()
        columns = [snapshot.resources.index(name) for name in ("cpu", "memory")]
        capacity = snapshot.allocatable[:, columns]
        assumed, requested = snapshot.non_zero_requested.copy(), snapshot.used[:, columns].copy()
        hopeless: set[PodClass] = set()
        placed: list[Placed] = []
        order = sorted(snapshot.pending, key=lambda pod: (-pod.pod_class.priority, pod.created))
        for pod in order:
            asked = pod.pod_class
            if asked in hopeless:
                continue
            nodes = np.nonzero(checker.fits(asked, free))[0]
            if not len(nodes):
                hopeless.add(asked)  # room only shrinks within a turn
                continue
            wanted, counted = checker.wanted(asked), np.array(asked.non_zero_requests)
            has = np.maximum(capacity[nodes], 1)
            least = (np.maximum(capacity[nodes] - assumed[nodes] - counted, 0) * _MOST // has).sum(axis=1) // 2
            with_pod = _balance(requested[nodes] + wanted[columns], has)
            balanced = _MOST // 2 + (_MOST // 2 + with_pod - _balance(requested[nodes], has)) // 2
            at = int(nodes[(least + balanced).argmax()])
            free[at] -= wanted
            assumed[at] += counted
            requested[at] += wanted[columns]
            placed.append((pod, at))
        return placed


def _balance(requested: Int64s, capacity: Int64s) -> Int64s:
    """Of two resources the standard deviation is half of the distance."""
    part = np.minimum(requested / capacity, 1.0)
    score: Int64s = ((1.0 - np.abs(part[:, 0] - part[:, 1]) / 2) * _MOST).astype(np.int64)
    return score


def rounds_by(policy: Policy, steps: int) -> Placer:
    """Rounds of the engine under a policy, of some steps at most."""

    def place(snapshot: Snapshot) -> list[Placed]:
        named = tuple(replace_policy(pod, policy.name) for pod in snapshot.pending)
        result = run_round(replace(snapshot, pending=named), {policy.name: policy}, steps=steps)
        return [(placement.pod, snapshot.table.index[placement.node]) for placement in result.placements]

    return place


def replace_policy(pod: PendingPod, policy: str) -> PendingPod:
    """The pod under another policy."""
    return PendingPod(pod.key, pod.uid, pod.pod_class, policy, pod.created)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes, in seconds from the begin, and how long it runs."""

    key: str
    pod_class: PodClass
    arrives: float
    runs_for: float


@dataclass(frozen=True, slots=True)
class Waits:
    """What came of a simulation.

    Attributes:
        placed: pods that got a node.
        used: part of all cpu in use, the mean of the second half.
        seconds_waited: float64[pods that came in the second half]; of those that still wait, until the end.
        shares: float64, of a node, the same pods.
        overcommitted: how often a node was.
    """

    placed: int
    used: float
    seconds_waited: Sequence[float]
    shares: Sequence[float]
    cpu_seconds: float
    overcommitted: int


def simulate(nodes: int, arrivals: Sequence[Arrival], placer: Placer, *, every: float, until: float) -> Waits:
    """Pods come and end; every so many seconds a placer decides."""
    table = NodeTable.of(_node(f"n{number:04}") for number in range(nodes))
    coming = sorted(arrivals, key=lambda each: each.arrives)
    by_key = {each.key: each for each in coming}
    running: dict[str, int] = {}
    ends: list[tuple[float, str]] = []
    started: dict[str, float] = {}
    waiting: dict[str, PendingPod] = {}
    used: list[float] = []
    now, following, seconds, over = 0.0, 0, 0.0, 0
    while now < until:
        while ends and ends[0][0] <= now:
            del running[heapq.heappop(ends)[1]]
        while following < len(coming) and coming[following].arrives <= now:
            pod = coming[following]
            waiting[pod.key] = PendingPod(pod.key, pod.key, pod.pod_class, BUILT_IN.name, _BEGIN + pod.arrives)
            following += 1
        if waiting:
            usage = [
                (table.nodes[at].name, (*by_key[key].pod_class.requests, (PODS, 1)), ()) for key, at in running.items()
            ]
            snapshot = build_snapshot(
                generation=1, now=_BEGIN + now, table=table, running=usage, pending=tuple(waiting.values())
            )
            before = time.process_time()
            placed = placer(snapshot)
            seconds += time.process_time() - before
            for pending, at in placed:
                del waiting[pending.key]
                running[pending.key], started[pending.key] = at, now
                heapq.heappush(ends, (now + by_key[pending.key].runs_for, pending.key))
            cpu = np.zeros(nodes)
            for key, at in running.items():
                cpu[at] += _share(by_key[key].pod_class)
            over += int((cpu > 1.0 + 1e-9).sum())
            if now >= until / 2:
                used.append(float(cpu.mean()))
        now += every
    late = [each for each in coming if until / 2 <= each.arrives < until]
    return Waits(
        len(started),
        float(np.mean(used)) if used else 0.0,
        [started.get(each.key, until) - each.arrives for each in late],
        [_share(each.pod_class) for each in late],
        seconds,
        over,
    )


def draw(
    seed: int, nodes: int, load: float, until: float, sizes: Mapping[float, float], mean_seconds: float
) -> list[Arrival]:
    """Pods that come at random, and run for exponential times.

    Args:
        load: what they ask for over what there is.
        sizes: shares of a node, with the part of the cluster's room that pods of each ask for.
    """
    random = np.random.default_rng(seed)
    found: list[Arrival] = []
    for share, part in sizes.items():
        rate = load * part * nodes / (share * mean_seconds)
        count = int(random.poisson(rate * until))
        asked = PodClass(requests=(("cpu", int(share * 64 * _MILLI)), ("memory", int(share * 256 * _GI))))
        for number, arrives in enumerate(sorted(random.uniform(0.0, until, count).tolist())):
            key = f"default/{share:g}-{number}"
            found.append(Arrival(key, asked, arrives, float(random.exponential(mean_seconds))))
    return found


def _node(name: str) -> Node:
    return Node(name, allocatable=(("cpu", 64 * _MILLI), ("memory", 256 * _GI), ("pods", 250)))


def _share(pod_class: PodClass) -> float:
    return dict(pod_class.requests)["cpu"] / (64 * _MILLI)

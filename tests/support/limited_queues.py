"""Clusters whose queues have limits, and what is wrong with a plan for one, by trying everything.

Nothing of the planner is used: what a plan says is added up again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

import msgspec
from support.model import amounts, node, pod, snapshot

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.pods import PodClass
from flowcore.model.queues import Queue, QueueState, QueueUsage, ReclaimMode
from flowcore.model.resources import Amounts
from flowcore.model.running_pods import RunningPod, RunningPods
from flowcore.planning.problem.result import Eviction, Placement, RoundResult

NOW = 100_000.0
Thing = TypeVar("Thing")


def runs(name: str, queue: str, cpu: int = 1000, *, on: int = 0, priority: int = 0, **fields: object) -> RunningPod:
    """A running pod."""
    pod_class = PodClass(requests=amounts(cpu), priority=priority)
    known = {"started": 1000.0, "queue": queue, "owner": "default/set"}
    return RunningPod(f"default/{name}", name, f"n{on}", pod_class, pod_class.requests, **(known | fields))  # type: ignore[arg-type]


def asks(name: str, queue: str, cpu: int = 1000, *, priority: int = 10, **fields: object) -> PendingPod:
    """A waiting pod."""
    known = pod(name, cpu, created=NOW - 10, priority=priority)
    return msgspec.structs.replace(known, queue=queue, **fields)  # type: ignore[arg-type]


def cluster(
    queues: Sequence[Queue],
    running: Sequence[RunningPod],
    pending: Sequence[PendingPod],
    *,
    cpus: Sequence[int] = (32_000,),
    budgets: dict[str, int] | None = None,
    gangs: dict[str, Gang] | None = None,
) -> Snapshot:
    """Nodes of so many milli-cores, each in a zone of its own, with these pods on them."""
    held: dict[str, Counter[str]] = {}
    for each in running:
        if each.queue:
            held.setdefault(each.queue, Counter()).update(dict((*each.usage, ("pods", 1))))
    usage = {name: QueueUsage(tuple(sorted(total.items()))) for name, total in held.items()}
    nodes = [node(f"n{at}", cpu, labels=(("zone", f"z{at}"),)) for at, cpu in enumerate(cpus)]
    found = snapshot(nodes, pending, [(each.node, each.usage, ()) for each in running], now=NOW)
    state, known = QueueState(tuple(queues), usage), RunningPods(tuple(running), budgets or {}, {})
    return replace(found, queues=state, running=known, gangs=gangs or {})


def drawn_cluster(seed: int) -> Snapshot:
    """One to three nodes, two trees of queues with limits, guarantees and weights, and more pods than these let in."""
    draw = random.Random(seed)

    def some(chance: float, least: int, most: int) -> int:
        return 1000 * draw.randint(least, most) if draw.random() < chance else 0

    queues = [
        Queue("x", limit=amounts(some(0.9, 2, 6), pods=draw.choice((0, 0, 2, 3, 4)))),
        Queue("x1", parent="x", weight=draw.randint(1, 2), limit=amounts(some(0.5, 1, 4)),
              guarantee=amounts(some(0.3, 1, 2))),
        Queue("x2", parent="x", limit=amounts(some(0.2, 1, 4), pods=draw.choice((0, 0, 1, 2))),
              reclaim=draw.choice(tuple(ReclaimMode))),
        Queue("y", limit=amounts(some(0.5, 1, 4))),
    ]  # fmt: skip
    cpus = [1000 * draw.randint(2, 8) for _ in range(draw.randint(1, 3))]
    count = _Count(queues, {f"n{at}": cpu for at, cpu in enumerate(cpus)})
    was_lowered = draw.random() < 0.1
    running = []
    for at in range(draw.randint(1, 9)):
        each = runs(
            f"r{at}",
            draw.choice(["x", "x1", "x1", "x2", "x2", "y", ""]),
            draw.choice((1000, 1000, 2000, 3000)),
            on=draw.randrange(len(cpus)),
            priority=draw.randrange(3),
            unevictable_reason="it is a static pod" if draw.random() < 0.1 else "",
            budgets=tuple(budget for budget in ("default/db", "default/web") if draw.random() < 0.25),
            owner=draw.choice(("", "default/set")),
            started=1000.0 + draw.randrange(9),
        )
        count.put(each.node, each.queue, each.usage)
        if count.free[each.node] >= 0 and (was_lowered or count.is_within(each.queue)):
            running.append(each)
        else:
            count.put(each.node, each.queue, each.usage, -1)
    pending = [
        asks(
            f"w{at}",
            draw.choice(["x", "x1", "x1", "x2", "y", ""]),
            draw.choice((1000, 1000, 2000, 3000)),
            priority=draw.randrange(4),
            preempts=draw.random() > 0.1,
        )
        for at in range(draw.randint(1, 5))
    ]
    gangs = {}
    if len(pending) > 1 and draw.random() < 0.15:
        gangs = {"g": Gang("g", 2)}
        pending[:2] = [msgspec.structs.replace(each, gangs=("g",)) for each in pending[:2]]
    budgets = {"default/web": draw.randint(0, 2), "default/db": draw.randint(0, 2)}
    return cluster(queues, running, pending, cpus=cpus, budgets=budgets, gangs=gangs)


class _Count:
    """What is free on nodes, and what queues hold, those below them included."""

    def __init__(self, queues: Iterable[Queue], free: Mapping[str, int]) -> None:
        self._parents = {queue.name: queue.parent for queue in queues}
        self.limits = {(queue.name, what): most for queue in queues for what, most in queue.limit}
        self.free, self._held = dict(free), Counter[tuple[str, str]]()

    def path(self, queue: str) -> list[str]:
        """A queue and those above it."""
        return [queue, *self.path(self._parents[queue])] if queue else []

    def put(self, on: str, queue: str, asked: Amounts, sign: int = 1) -> None:
        """A pod comes, or goes (-1); ``queue``: "" where it counts for none."""
        self.free[on] -= sign * dict(asked)["cpu"]
        for above in self.path(queue):
            for what, amount in (*asked, ("pods", 1)):
                self._held[above, what] += sign * amount

    def is_within(self, queue: str) -> bool:
        """Whether all limits are kept that a pod of a queue counts for."""
        path = self.path(queue)
        return all(self._held[name, what] <= most for (name, what), most in self.limits.items() if name in path)


@dataclass(frozen=True)
class _There:
    """A pod that is there once the plan is carried out."""

    name: str
    queue: str
    asked: Amounts
    on: str
    priority: int
    budgets: tuple[str, ...] = ()


def faults(before: Snapshot, result: RoundResult) -> list[str]:
    """What is wrong with a plan."""
    return [*_too_early(before, result), *_in_vain(before, result), *_inversions(before, result)]


def _too_early(before: Snapshot, result: RoundResult) -> Iterator[str]:
    """Pods that have no room, or pass a limit, if they come as soon as their own victims have left."""
    later = [placement for placement in result.placements if placement.victims]
    for some in _subsets(later):
        count = _count_after(before, result, {key for each in some for key in each.victims}, some)
        for each in result.placements:
            if (each in some or not each.victims) and not count.is_within(each.pod.queue):
                yield f"{each.pod.uid} passes a limit after {[other.pod.uid for other in some]}"
        if min(count.free.values()) < 0:
            yield f"{[each.pod.uid for each in some]} have no room"


def _in_vain(before: Snapshot, result: RoundResult) -> Iterator[str]:
    """Victims that might have stayed."""
    for staying in _subsets(result.evictions):
        rest = replace(result, evictions=tuple(each for each in result.evictions if each not in staying))
        count = _count_after(before, rest, {each.pod.key for each in rest.evictions}, result.placements)
        if staying and min(count.free.values()) >= 0 and all(
            count.is_within(each.pod.queue) for each in result.placements
        ):  # fmt: skip
            yield f"{[each.pod.uid for each in staying]} leave in vain"


def _inversions(before: Snapshot, result: RoundResult) -> Iterator[str]:
    """Pods that wait and might have the place of pods of lower priorities, all of which count for one of their limits.

    A pod of a gang waits for the others, and one that preempts nobody waits for pods to end.
    """
    assert before.running is not None
    gone = {each.pod.key for each in result.evictions}
    count = _count_after(before, result, gone, result.placements)
    left = dict(before.running.budgets)
    for each in result.evictions:
        for budget in each.pod.budgets:
            left[budget] -= 1
    there = [
        *(
            _There(each.uid, each.queue, each.usage, each.node, each.priority, each.budgets)
            for each in before.running.pods
            if each.key not in gone and not each.unevictable_reason
        ),
        *(
            _There(each.pod.uid, each.pod.queue, each.pod.pod_class.requests, each.node, each.pod.pod_class.priority)
            for each in result.placements
            if not each.pod.gangs
        ),
    ]
    limited = {name for name, _ in count.limits}
    for waiting in (each.pod for each in result.unplaced if each.pod.preempts and not each.pod.gangs):
        own = limited.intersection(count.path(waiting.queue))
        lower = [
            each
            for each in there
            if each.priority < waiting.pod_class.priority and not own.isdisjoint(count.path(each.queue))
        ]
        for victims in _subsets(lower):
            if victims and _fits_without(count, waiting, victims, left):
                yield f"{waiting.uid} waits beside {[each.name for each in victims]}"
                break


def _fits_without(count: _Count, waiting: PendingPod, victims: Collection[_There], left: Mapping[str, int]) -> bool:
    lost = Counter(budget for each in victims for budget in each.budgets)
    if any(number > left[budget] for budget, number in lost.items()):
        return False
    for each in victims:
        count.put(each.on, each.queue, each.asked, -1)
    fits = False
    for name in count.free:
        count.put(name, waiting.queue, waiting.pod_class.requests)
        fits |= count.free[name] >= 0 and count.is_within(waiting.queue)
        count.put(name, waiting.queue, waiting.pod_class.requests, -1)
    for each in victims:
        count.put(each.on, each.queue, each.asked)
    return fits


def _count_after(before: Snapshot, result: RoundResult, gone: Collection[str], come: Collection[Placement]) -> _Count:
    """What is left once some victims have gone, and those have come that wait for nobody, and some others.

    The replacement of a victim that has a node counts for its queue as the victim does, and for its node at once.
    """
    assert before.queues is not None
    assert before.running is not None
    free = {each.name: dict(each.allocatable)["cpu"] for each in before.table.nodes}
    count = _Count(before.queues.queues, free)
    evictions: dict[str, Eviction] = {each.pod.key: each for each in result.evictions}
    for each in before.running.pods:
        to = evictions[each.key].to if each.key in evictions else ""
        if to:
            count.put(to, each.queue, each.usage)
        if each.key not in gone:
            count.put(each.node, "" if to else each.queue, each.usage)
    for placement in result.placements:
        if not placement.victims or placement in come:
            count.put(placement.node, placement.pod.queue, placement.pod.pod_class.requests)
    return count


def _subsets(things: Sequence[Thing]) -> Iterator[tuple[Thing, ...]]:
    """All of them, the smallest first."""
    for size in range(len(things) + 1):
        yield from combinations(things, size)

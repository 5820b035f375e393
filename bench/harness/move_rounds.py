"""Small drawn clusters in which pods move or leave for waiting ones, and the best plan, by sums of our own."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from flowcore.cluster.cluster import Cluster
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod, PodClass
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.round import RoundResult
from flowcore.questions.scenario import Scenario
from harness.drawn_pods import NOW

_MEMORY = 64 * 2**30
#: Priorities of running pods beside urgent ones, and of these.
_LOWER, _URGENT = (0, 10, 20), 1000
#: In place of a node: the pod leaves and has no other one.
_GONE = -1
#: Below all priorities, and what kube-scheduler adds to each before it sums them (pickOneNodeForPreemption).
_NOBODY, _ABOVE_ALL = -(2**32), 2**31

#: What plans are compared by, the smaller the better: pods that wait, the highest priority of a victim, the sum of the
#: priorities as kube-scheduler counts it, and pods that move.
MoveStanding = tuple[int, int, int, int]


@dataclass(frozen=True)
class MoveRound:
    """A drawn cluster: those that run may move, and cpu decides alone.

    Attributes:
        rooms: cpu of each node.
        running: node, cpu and priority of each pod that runs; one of a lower priority may be preempted too.
        waiting: cpu of each pod that waits.
        priority: of those that wait.
    """

    rooms: Sequence[int]
    running: Sequence[tuple[int, int, int]]
    waiting: Sequence[int]
    priority: int

    def scenario(self) -> Scenario:
        """The same as objects."""
        cluster = Cluster()
        cluster.set_namespace("default", ())
        for place, cpu in enumerate(self.rooms):
            amounts = (("cpu", cpu), ("memory", _MEMORY), ("pods", 110))
            cluster.put_node(Node(f"n{place}", f"n{place}", (), allocatable=amounts))
        for number, (node, cpu, priority) in enumerate(self.running):
            cluster.put_pod(_pod(f"r{number}", cpu, priority, node_name=f"n{node}", started=1.0, owner=f"o{number}"))
        for number, cpu in enumerate(self.waiting):
            cluster.put_pod(_pod(f"w{number}", cpu, self.priority))
        return Scenario(cluster)


def draw_moves(seed: int, *, urgent: bool = False) -> MoveRound:
    """A cluster in which pods that wait mostly fit only if others move, or leave for them where they are urgent."""
    draw = random.Random(seed)
    rooms = [500 * draw.randint(8, 16) for _ in range(draw.randint(2, 4))]
    left, running = list(rooms), list[tuple[int, int, int]]()
    for _ in range(draw.randint(3, 6)):
        node, cpu = draw.randrange(len(rooms)), 500 * draw.choice((2, 3, 4, 5, 6))
        if cpu <= left[node]:
            left[node] -= cpu
            running.append((node, cpu, draw.choice(_LOWER) if urgent else 0))
    waiting = [500 * draw.choice((4, 6, 8, 10)) for _ in range(draw.randint(1, 2))]
    return MoveRound(rooms, running, waiting, _URGENT if urgent else 0)


def _pod(name: str, cpu: int, priority: int, **fields: object) -> Pod:
    requests = (("cpu", cpu), ("memory", 2**20))
    known: dict[str, object] = {"scheduler_name": "thalweg", "created": NOW - 60, "usage": requests} | fields
    return Pod("default", name, name, PodClass(requests, priority=priority), **known)  # type: ignore[arg-type]


# -- what plans are compared by ----------------------------------------------------------------------------------------


def standing_of(drawn: MoveRound, result: RoundResult) -> MoveStanding:
    """What a round's plan is compared by."""
    victims = [each.pod.priority for each in result.evictions if each.kind is not EvictionKind.MIGRATION]
    waiting = len(drawn.waiting) - len(result.placements)
    return _standing(waiting, victims, len(result.evictions) - len(victims))


def _standing(waiting: int, victims: Sequence[int], moves: int) -> MoveStanding:
    return waiting, max(victims, default=_NOBODY), sum(priority + _ABOVE_ALL for priority in victims), moves


def best_standing(drawn: MoveRound) -> MoveStanding:
    """The same of the best plan, by trying every node for every pod: each that moves has room before any leaves."""
    homes = [node for node, _, _ in drawn.running]
    start = _left(drawn, homes)
    best = _standing(_waiting(drawn, start), (), 0)
    rooms = range(len(drawn.rooms))
    ways = [[*rooms, _GONE] if priority < drawn.priority else [*rooms] for _, _, priority in drawn.running]
    for nodes in product(*ways):
        moved = [number for number, node in enumerate(nodes) if node not in (homes[number], _GONE)]
        gone = [number for number, node in enumerate(nodes) if node == _GONE]
        victims = [drawn.running[number][2] for number in gone]
        if _standing(0, victims, len(moved)) >= best:
            continue
        left = _left(drawn, nodes)
        if min(left) < 0:
            continue
        if _at_once(drawn, nodes, moved, start):
            best = min(best, _standing(_waiting(drawn, left), victims, len(moved)))
    return best


def _left(drawn: MoveRound, nodes: Sequence[int]) -> list[int]:
    left = list(drawn.rooms)
    for node, (_, cpu, _) in zip(nodes, drawn.running, strict=True):
        if node != _GONE:
            left[node] -= cpu
    return left


def _waiting(drawn: MoveRound, left: Sequence[int]) -> int:
    """How few pods wait at least with this room."""
    return min(_ways(list(drawn.waiting), list(left)))


def _ways(pods: list[int], left: list[int]) -> Iterator[int]:
    if not pods:
        yield 0
        return
    for node, room in enumerate(left):
        if pods[0] <= room:
            yield from _ways(pods[1:], [*left[:node], room - pods[0], *left[node + 1 :]])
    yield from (1 + rest for rest in _ways(pods[1:], left))


def _at_once(drawn: MoveRound, nodes: Sequence[int], moved: Sequence[int], start: Sequence[int]) -> bool:
    room = list(start)
    for number in moved:
        room[nodes[number]] -= drawn.running[number][1]
    return min(room) >= 0

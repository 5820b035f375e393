"""Small drawn clusters in which pods move for waiting ones, and the best plan that there is, by sums of our own."""

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

NOW = 1_795_478_400.0
_MEMORY = 64 * 2**30


@dataclass(frozen=True)
class MoveRound:
    """A drawn cluster: all pods have one priority, those that run may move, and cpu decides alone.

    Attributes:
        rooms: cpu of each node.
        running: node and cpu of each pod that runs.
        waiting: cpu of each pod that waits.
    """

    rooms: Sequence[int]
    running: Sequence[tuple[int, int]]
    waiting: Sequence[int]

    def scenario(self) -> Scenario:
        """The same as objects."""
        cluster = Cluster()
        cluster.set_namespace("default", ())
        for place, cpu in enumerate(self.rooms):
            amounts = (("cpu", cpu), ("memory", _MEMORY), ("pods", 110))
            cluster.put_node(Node(f"n{place}", f"n{place}", (), allocatable=amounts))
        for number, (node, cpu) in enumerate(self.running):
            cluster.put_pod(_pod(f"r{number}", cpu, node_name=f"n{node}", started=1.0, owner=f"o{number}"))
        for number, cpu in enumerate(self.waiting):
            cluster.put_pod(_pod(f"w{number}", cpu))
        return Scenario(cluster)


def draw_moves(seed: int) -> MoveRound:
    """A cluster in which pods that wait mostly fit only if others move."""
    draw = random.Random(seed)
    rooms = [500 * draw.randint(8, 16) for _ in range(draw.randint(2, 4))]
    left, running = list(rooms), list[tuple[int, int]]()
    for _ in range(draw.randint(3, 6)):
        node, cpu = draw.randrange(len(rooms)), 500 * draw.choice((2, 3, 4, 5, 6))
        if cpu <= left[node]:
            left[node] -= cpu
            running.append((node, cpu))
    return MoveRound(rooms, running, [500 * draw.choice((4, 6, 8, 10)) for _ in range(draw.randint(1, 2))])


def _pod(name: str, cpu: int, **fields: object) -> Pod:
    requests = (("cpu", cpu), ("memory", 2**20))
    known: dict[str, object] = {"scheduler_name": "thalweg", "created": NOW - 60, "usage": requests} | fields
    return Pod("default", name, name, PodClass(requests), **known)  # type: ignore[arg-type]


# -- what plans are compared by ----------------------------------------------------------------------------------------


def standing_of(drawn: MoveRound, result: RoundResult) -> tuple[int, int]:
    """Pods that wait, and pods that move: the smaller the better."""
    moves = sum(each.kind is EvictionKind.MIGRATION for each in result.evictions)
    return len(drawn.waiting) - len(result.placements), moves


def best_standing(drawn: MoveRound, *, chains: bool) -> tuple[int, int]:
    """The same of the best plan, by trying every node for every pod.

    Args:
        chains: whether a pod may take room that another one left before; else all have their room before any leaves.
    """
    homes = [node for node, _ in drawn.running]
    start = _left(drawn, homes)
    best = (_waiting(drawn, start), 0)
    for nodes in product(range(len(drawn.rooms)), repeat=len(homes)):
        moved = [number for number, node in enumerate(nodes) if node != homes[number]]
        if not moved or (0, len(moved)) >= best:
            continue
        left = _left(drawn, nodes)
        if min(left) < 0:
            continue
        reachable = _in_some_order(drawn, nodes, moved, start) if chains else _at_once(drawn, nodes, moved, start)
        if reachable:
            best = min(best, (_waiting(drawn, left), len(moved)))
    return best


def _left(drawn: MoveRound, nodes: Sequence[int]) -> list[int]:
    left = list(drawn.rooms)
    for node, (_, cpu) in zip(nodes, drawn.running, strict=True):
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


def _in_some_order(drawn: MoveRound, nodes: Sequence[int], moved: Sequence[int], room: Sequence[int]) -> bool:
    if not moved:
        return True
    for number in moved:
        home, cpu = drawn.running[number]
        if cpu <= room[nodes[number]]:
            after = list(room)
            after[nodes[number]] -= cpu
            after[home] += cpu
            if _in_some_order(drawn, nodes, [other for other in moved if other != number], after):
                return True
    return False

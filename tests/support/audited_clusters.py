"""Small clusters that are drawn, and the best that any plan of them does: all plans are tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from support.cli import Manifest

GPU = "nvidia.com/gpu"
#: Amounts of cpu and GPUs.
Size = tuple[int, int]


@dataclass(frozen=True)
class Drawn:
    """A cluster.

    Attributes:
        nodes: what each offers; those with a name in ``fast`` have a label.
        fast: names of nodes.
        asks: what each pod asks for.
        homes: where pods run; others wait.
        picky: pods that need a fast node.
        staying: running pods without a controller: no plan moves them.
        priorities: of pods, 0 where none is named.
        gang: pods that come together or not at all.
    """

    nodes: dict[str, Size]
    fast: frozenset[str]
    asks: dict[str, Size]
    homes: dict[str, str]
    picky: frozenset[str]
    staying: frozenset[str]
    priorities: dict[str, int]
    gang: tuple[str, ...]

    @property
    def waiting(self) -> list[str]:
        """Pods without a node."""
        return [name for name in self.asks if name not in self.homes]

    def may_use(self, pod: str, node: str) -> bool:
        """Whether the rules of a pod let it use a node."""
        return pod not in self.picky or node in self.fast

    def objects(self) -> list[Manifest]:
        """As kubectl prints them."""
        return [*(self._node(name) for name in self.nodes), *(self._pod(name) for name in self.asks)]

    def _node(self, name: str) -> Manifest:
        cpu, gpus = self.nodes[name]
        labels = {"kubernetes.io/hostname": name, **({"fast": "yes"} if name in self.fast else {})}
        allocatable = {"cpu": str(cpu), GPU: str(gpus), "memory": "16Gi", "pods": "110"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": allocatable},
        }

    def _pod(self, name: str) -> Manifest:
        cpu, gpus = self.asks[name]
        requests = {"cpu": str(cpu), **({GPU: str(gpus)} if gpus else {})}
        metadata: Manifest = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        if name not in self.staying:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
            metadata["ownerReferences"] = [owner]
        if name in self.gang:
            least = str(len(self.gang))
            metadata["annotations"] = {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": least}
        spec: Manifest = {
            "containers": [{"name": "main", "image": "example.invalid/main", "resources": {"requests": requests}}],
            "priority": self.priorities.get(name, 0),
        }
        if name in self.picky:
            spec["nodeSelector"] = {"fast": "yes"}
        if name not in self.homes:
            return {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": spec,
                "status": {"phase": "Pending"},
            }
        status = {"phase": "Running", "startTime": "2026-11-01T10:00:00Z"}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": spec | {"nodeName": self.homes[name]},
            "status": status,
        }


def drawn(seed: int) -> Drawn:
    """A cluster of two or three nodes, up to four pods that run and up to three that wait."""
    random = Random(seed)
    nodes = {f"n{at}": (random.choice((3, 4, 6)), random.choice((0, 2, 4))) for at in range(random.choice((2, 3, 3)))}
    fast = frozenset(name for name in nodes if random.random() < 0.6)
    asks, homes, picky, staying = dict[str, Size](), dict[str, str](), set[str](), set[str]()
    priorities = dict[str, int]()
    left = dict(nodes)
    for at in range(random.randint(1, 4)):
        name, size = f"r{at}", (random.choice((1, 1, 2, 3)), random.choice((0, 0, 1, 2)))
        room = [node for node, free in left.items() if free[0] >= size[0] and free[1] >= size[1]]
        if not room:
            continue
        node = random.choice(room)
        asks[name], homes[name] = size, node
        left[node] = (left[node][0] - size[0], left[node][1] - size[1])
        if node in fast and random.random() < 0.3:
            picky.add(name)
        if random.random() < 0.25:
            staying.add(name)
        priorities[name] = random.choice((0, 0, 5))
    for at in range(random.randint(0, 3)):
        name = f"w{at}"
        asks[name] = (random.choice((1, 2, 3, 4)), random.choice((0, 0, 1, 2, 4)))
        priorities[name] = random.choice((0, 0, 5, 9))
        if random.random() < 0.2:
            picky.add(name)
    waiting = [name for name in asks if name.startswith("w")]
    gang = tuple(waiting[:2]) if len(waiting) > 1 and random.random() < 0.5 else ()
    return Drawn(nodes, fast, asks, homes, frozenset(picky), frozenset(staying), priorities, gang)


def best(cluster: Drawn, urgent: Sequence[str] = ()) -> dict[str, int]:
    """The best that any plan does, finding by finding.

    Args:
        urgent: the pods that PriorityInversions counts.
    """
    waiting = cluster.waiting
    highest = max((cluster.priorities[name] for name in waiting), default=0)
    weak = [name for name in cluster.homes if cluster.priorities.get(name, 0) < highest]
    kept = [*_choices(cluster, waiting, ())]
    fewest = min(len(set(plan.values())) for plan in _choices(cluster, (), ()))
    return {
        "WaitingPods": max(sum(name in plan for name in waiting) for plan in kept),
        "WaitingGangs": max(bool(cluster.gang) and all(name in plan for name in cluster.gang) for plan in kept),
        "EmptyNodes": len(set(cluster.homes.values())) - fewest,
        "PriorityInversions": max(sum(name in plan for name in urgent) for plan in _choices(cluster, urgent, weak)),
    }


def most_joined(cluster: Drawn, like: str) -> int:
    """By how many GPUs more than now pods like this can use in the best of all places of those that run."""
    gpus = cluster.asks[like][1]
    most = max(_fitting(cluster, like, plan) for plan in _choices(cluster, (), ()))
    return (most - _fitting(cluster, like, cluster.homes)) * gpus


def _fitting(cluster: Drawn, like: str, plan: Mapping[str, str]) -> int:
    left, (cpu, gpus) = dict(cluster.nodes), cluster.asks[like]
    for name, node in plan.items():
        left[node] = _less(left[node], cluster.asks[name])
    return sum(min(left[node][0] // cpu, left[node][1] // gpus) for node in left if cluster.may_use(like, node))


def _choices(cluster: Drawn, coming: Sequence[str], leaving: Sequence[str]) -> Iterator[dict[str, str]]:
    """Where all pods are, in every plan: some come, those that run stay or move, and some may be gone."""
    ways: list[tuple[str, list[str]]] = []
    for name in (*cluster.homes, *coming):
        usable = [node for node in cluster.nodes if cluster.may_use(name, node)]
        ways.append((name, [cluster.homes[name]] if name in cluster.homes and name in cluster.staying else usable))
    without = {*coming, *leaving}

    def placed(left: dict[str, Size], number: int) -> Iterator[dict[str, str]]:
        if number == len(ways):
            yield {}
            return
        name, usable = ways[number]
        if name in without:
            yield from placed(left, number + 1)
        for node in usable:
            room = _less(left[node], cluster.asks[name])
            if min(room) >= 0:
                for plan in placed({**left, node: room}, number + 1):
                    yield {name: node, **plan}

    return placed(dict(cluster.nodes), 0)


def _less(room: Size, taken: Size) -> Size:
    return room[0] - taken[0], room[1] - taken[1]


def as_list(objects: Sequence[Manifest]) -> dict[str, Any]:
    """Objects as one document."""
    return {"apiVersion": "v1", "kind": "List", "items": [*objects]}

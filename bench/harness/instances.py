"""Synthetic clusters for the engine's figures: seeded, pure, shaped like a production cluster and not uniform.

- Pods have sizes of the openb trace (`openb_sizes.csv`: each distinct cpu, memory and whole GPUs, with how many pods of
  the trace ask for it), nodes its shapes (`openb_shapes.csv`). All nodes are enlarged by one common factor, so that the
  load is the one wanted; GPUs stay whole, the fractions of one node count for the next. (Few pods on many nodes would
  shrink them: then big pods fit nowhere.)
- Load up to 1: running and waiting pods together ask for that share of what all nodes have of the scarcest resource
  (cpu, memory or GPUs, the one that most is asked of). Above 1: waiting pods ask for so many times what running pods
  leave free, in the scarcest resource; most nodes are then full. Without running pods both are the same.
- Running pods never overcommit a node. They take at most nine tenths of a resource, but for nodes filled up on purpose.
- A third of the classes have a node selector or a required node affinity, a tenth tolerate the taint that a tenth of
  the nodes have, a tenth spread over zones (DoNotSchedule, maxSkew 1 to 3); those run already, as often in each zone. A
  class that selects nodes by pool selects
  about twice its share of them, or more. Few classes have many pods (weights fall as 1 / rank ** 0.8); creation times
  are all distinct.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.inter_pod_constraints import InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node, Taint
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import Amounts
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement

GPU = "nvidia.com/gpu"
ZONE, POOL, GENERATION = "topology.kubernetes.io/zone", "pool", "generation"
#: Columns of the arrays here: milli-cpu, MiB, GPUs.
_NAMES = ("cpu", "memory", GPU)
_MIB = 1024**2
_NAMESPACE = "bench"
_NOW = 1_700_000_000.0
_POOLS, _GENERATIONS = 16, 5
_TAINT = Taint("dedicated", "batch", "NoSchedule")
_TOLERATION = Toleration("dedicated", "Equal", "batch", "NoSchedule")
#: Of a resource that running pods take at most, when they are placed at random.
_MOST_RUNNING = 0.9
#: Other workloads that running pods belong to.
_RUNNING_APPS = 200

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Size:
    """What to generate.

    Attributes:
        spread: whether a tenth of the classes spread over zones; nothing else differs.
    """

    nodes: int
    pending: int
    classes: int
    running: int = 0
    load: float = 0.7
    seed: int = 1
    zones: int = 6
    spread: bool = True

    def __str__(self) -> str:
        """Nodes / pending / classes / running."""
        return f"{self.nodes:,} / {self.pending:,} / {self.classes:,} / {self.running:,}"


@dataclass(frozen=True, slots=True)
class Workload:
    """A class of waiting pods: what they have in common, and its share of all waiting pods."""

    name: str
    pod_class: PodClass
    kind: PodSignature
    share: float


@dataclass(frozen=True, slots=True)
class Instance:
    """A generated cluster.

    Attributes:
        workloads: the classes that ``to_snapshot.pending`` was drawn from; ``batch`` draws more pods of them.
        running: kinds of running pods, and int64[K] the node of each.
        scarcest: the resource that most is asked of.
        asked: what running and waiting pods ask for of the scarcest resource, over what all nodes have.
        pressure: what waiting pods ask for, over what is free, in the resource where that is most.
    """

    size: Size
    snapshot: Snapshot
    workloads: tuple[Workload, ...]
    running: tuple[tuple[PodSignature, Int64s], ...]
    scarcest: str
    asked: float
    pressure: float

    def batch(self, number: int, pods: int) -> tuple[PendingPod, ...]:
        """Another batch of waiting pods of the same classes; equal for clusters that differ in their nodes only."""
        return tuple(_pods(self.size, self.workloads, pods, number))


def make(size: Size) -> Instance:
    """The instance of a size: the same arguments always give the same one.

    Raises:
        ValueError: running pods find no place although they ask for nine tenths of the nodes or less.
    """
    workloads = _workloads(size)
    pending = tuple(_pods(size, workloads, size.pending, 0))
    waiting = _demand(pending)
    sizes, weights = _table("openb_sizes.csv")
    running = _random(size, "running").multinomial(size.running, weights)  # pods of each size
    taken = running @ sizes
    if size.load <= 1:
        target = np.maximum((taken + waiting) / size.load, taken / _MOST_RUNNING)
    else:
        target = np.maximum(taken + waiting / size.load, taken / _MOST_RUNNING)
    for attempt in range(10):
        # Scattered room may not hold the last big pods: then all nodes are a little larger.
        capacity, models = _nodes(size, target * 1.03**attempt)
        at, which = _scatter(size, capacity, sizes, running)
        if at is not None:
            break
    else:
        raise ValueError(f"no place for {size.running} running pods on {size.nodes} nodes")
    amounts = sizes[which]
    if size.load > 1:
        _fill_up(size, capacity, at, amounts, waiting)
    nodes = _as_nodes(size, capacity, models)
    kinds = _running_kinds(size, workloads, nodes, at)
    snapshot = build_snapshot(
        generation=1,
        now=_NOW,
        table=NodeTable.of(nodes),
        running=((nodes[node].name, asked, ()) for node, asked in zip(at.tolist(), _shared(amounts), strict=True)),
        pending=pending,
        pod_index=PodIndex.of(
            ((nodes[i].name, kind) for kind, where in kinds for i in where.tolist()), {_NAMESPACE: ()}
        ),
    )
    total, used = capacity.sum(axis=0), amounts.sum(axis=0)
    asked = _ratio(used + waiting, total)
    return Instance(
        size, snapshot, workloads, kinds, _NAMES[int(asked.argmax())], float(asked.max()),
        float(_ratio(waiting, total - used).max()),
    )  # fmt: skip


def _random(size: Size, what: str) -> np.random.Generator:
    """A stream of its own for each part, so that the same seed gives the same pods whatever the nodes are."""
    return np.random.default_rng([size.seed, *what.encode()])


def _table(name: str) -> tuple[Int64s, Float64s]:
    """A data file: int64[K, 3] milli-cpu, MiB and GPUs, and the rows' weights."""
    rows = [list(map(int, (*row[:3], row[-1]))) for row in _rows(name)]
    table = np.array(rows, dtype=np.int64)
    return table[:, :3], table[:, 3] / table[:, 3].sum()


def _rows(name: str) -> list[list[str]]:
    with (Path(__file__).parent / name).open(newline="") as file:
        return list(csv.reader(file))[1:]


def _workloads(size: Size) -> tuple[Workload, ...]:
    draw = _random(size, "kinds")
    rules = _random(size, "spread")
    spreads, skews = _some(rules, size.classes, 1 / 10), rules.integers(1, 4, size.classes)
    sizes, weights = _table("openb_sizes.csv")
    shares = np.arange(1, size.classes + 1) ** -0.8
    shares = draw.permutation(shares / shares.sum())
    selects, tolerates = (_some(draw, size.classes, part) for part in (1 / 3, 1 / 10))
    rows = draw.choice(len(sizes), size.classes, p=weights)
    weight = shares * sizes[rows].max(axis=1)
    weight /= weight.sum()
    found: set[PodClass] = set()
    workloads = []
    for i in range(size.classes):
        asked = sizes[rows[i]]
        where = _where(draw, float(max(shares[i], weight[i]))) if selects[i] else {}
        tolerations = (_TOLERATION,) if tolerates[i] else ()
        pod_class = PodClass(requests=_amounts(asked), tolerations=tolerations, **where)
        while pod_class in found:  # the same in all: then a little larger or smaller
            factor = draw.uniform(0.75, 1.25)
            asked = np.array([max(10, round(asked[0] * factor / 10) * 10), round(asked[1] * factor), asked[2]])
            pod_class = PodClass(requests=_amounts(asked), tolerations=tolerations, **where)
        found.add(pod_class)
        name = f"app-{i:04}"
        rules = _spread(name, int(skews[i])) if size.spread and spreads[i] else None
        workloads.append(
            Workload(name, pod_class, PodSignature(_NAMESPACE, (("app", name),), constraints=rules), float(shares[i]))
        )
    return tuple(workloads)


def _some(draw: np.random.Generator, count: int, part: float) -> NDArray[np.bool_]:
    """bool[count] with that part of them true, rounded."""
    chosen = np.zeros(count, dtype=np.bool_)
    chosen[draw.permutation(count)[: round(count * part)]] = True
    return chosen


def _where(draw: np.random.Generator, share: float) -> dict[str, Any]:
    """A node selector or a required node affinity for a class with this share of the waiting pods."""
    way = draw.integers(4)
    if way == 0 and share < 0.3:  # all but one zone
        return _affinity(Requirement(ZONE, "NotIn", ("zone-0",)))
    if way == 1 and share < 0.3:  # three of five generations
        return _affinity(Requirement(GENERATION, "Gt", ("1",)))
    pools = min(_POOLS, max(1, ceil(2 * share * _POOLS)))
    chosen = tuple(f"pool-{i:02}" for i in sorted(draw.permutation(_POOLS)[:pools].tolist()))
    if pools == 1:
        return {"node_selector": ((POOL, chosen[0]),)}
    return _affinity(Requirement(POOL, "In", chosen))


def _affinity(requirement: Requirement) -> dict[str, Any]:
    return {"required_affinity": (NodeSelectorTerm(expressions=(requirement,)),)}


def _spread(name: str, max_skew: int) -> InterPodConstraints:
    selector = LabelSelector((Requirement("app", "In", (name,)),))
    return InterPodConstraints(spread=(SpreadConstraint(ZONE, max_skew, selector),))


def _pods(size: Size, workloads: tuple[Workload, ...], count: int, number: int) -> Iterator[PendingPod]:
    draw = _random(size, f"pods {number}")
    counts = draw.multinomial(count, [workload.share for workload in workloads])
    if count >= len(workloads):  # each class has a pod
        for at in np.nonzero(counts == 0)[0]:
            counts[counts.argmax()] -= 1
            counts[at] = 1
    of = draw.permutation(np.repeat(np.arange(len(workloads)), counts))
    ages = np.sort(draw.permutation(count * 4)[:count])[::-1] * (600 / (count * 4))  # of the last ten minutes
    for i, (at, age) in enumerate(zip(of.tolist(), ages.tolist(), strict=True)):
        key = f"{_NAMESPACE}/{workloads[at].name}-{number}-{i:06}"
        yield PendingPod(key, key, workloads[at].pod_class, BUILT_IN.name, _NOW - age, workloads[at].kind)


def _demand(pods: tuple[PendingPod, ...]) -> Float64s:
    counts: dict[Amounts, int] = {}
    for pod in pods:
        counts[pod.pod_class.requests] = counts.get(pod.pod_class.requests, 0) + 1
    total = np.zeros(3)
    for requests, count in counts.items():
        found = dict(requests)
        total += [found.get("cpu", 0) * count, found.get("memory", 0) / _MIB * count, found.get(GPU, 0) * count]
    return total


def _nodes(size: Size, target: Float64s) -> tuple[Int64s, list[str]]:
    """int64[N, 3] what each node has, and its GPU model: openb's shapes, enlarged until no target is missed."""
    draw = _random(size, "nodes")
    shapes, weights = _table("openb_shapes.csv")
    # Each shape as often as its weight says, the rest at random: the mix is the same whatever the number.
    counts = np.floor(weights * size.nodes).astype(np.int64)
    counts += draw.multinomial(size.nodes - counts.sum(), weights)
    which = draw.permutation(np.repeat(np.arange(len(shapes)), counts))
    base = shapes[which].astype(np.float64)
    factor = float(_ratio(target, base.sum(axis=0)).max())
    capacity = base * factor
    whole = np.rint(np.cumsum(capacity[:, 2]))  # GPUs: rounded so that each partial sum is
    capacity[:, 2] = np.diff(whole, prepend=0)
    return np.floor(capacity).astype(np.int64), [_rows("openb_shapes.csv")[i][3] for i in which.tolist()]


def _scatter(size: Size, capacity: Int64s, sizes: Int64s, running: Int64s) -> tuple[Int64s, Int64s] | tuple[None, None]:
    """int64[Q] node and int64[Q] size of each running pod, big ones first, each at random where it fits."""
    draw = _random(size, "scatter")
    free, room = capacity.copy(), np.full(len(capacity), 110)
    at, which = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    share = (sizes / np.maximum(capacity.mean(axis=0), 1)).max(axis=1)
    for row in np.argsort(-share, kind="stable").tolist():
        asked = sizes[row] > 0
        fits = np.minimum((free[:, asked] // sizes[row][asked]).min(axis=1), room)
        if fits.sum() < running[row]:
            return None, None
        here = draw.multivariate_hypergeometric(fits, running[row], method="marginals")
        free -= here[:, np.newaxis] * sizes[row]
        room -= here
        at.append(np.repeat(np.arange(len(capacity)), here))
        which.append(np.full(running[row], row))
    return np.concatenate(at), np.concatenate(which)


def _fill_up(size: Size, capacity: Int64s, at: Int64s, amounts: Int64s, waiting: Float64s) -> None:
    """Lets one pod take all that its node has left, on as many nodes as it takes for the load: in ``amounts``."""
    free = capacity.copy()
    np.subtract.at(free, at, amounts)
    last = np.full(len(capacity), -1)
    last[at] = np.arange(len(at))
    order = _random(size, "fill").permutation(len(capacity))
    order = np.concatenate([order[last[order] < 0], order[last[order] >= 0]])  # nodes without pods cannot be filled
    pressure = _ratio(waiting, np.cumsum(free[order], axis=0)).max(axis=1)
    full = order[np.nonzero(pressure < size.load)[0][1:]]
    full = full[last[full] >= 0]
    amounts[last[full]] += free[full]


def _as_nodes(size: Size, capacity: Int64s, models: list[str]) -> list[Node]:
    draw = _random(size, "labels")
    zones = draw.permutation(np.arange(size.nodes) % size.zones).tolist()
    pools = draw.permutation(np.arange(size.nodes) % _POOLS).tolist()
    generations = draw.integers(_GENERATIONS, size=size.nodes).tolist()
    tainted = _some(draw, size.nodes, 1 / 10).tolist()
    nodes = []
    for i, ((cpu, memory, gpus), model) in enumerate(zip(capacity.tolist(), models, strict=True)):
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": f"node-{i:05}",
            "kubernetes.io/os": "linux",
            GENERATION: str(generations[i]),
            POOL: f"pool-{pools[i]:02}",
            ZONE: f"zone-{zones[i]}",
        }
        if model:
            labels["gpu-model"] = model
        nodes.append(
            Node(
                f"node-{i:05}",
                uid=f"node-{i:05}",
                labels=tuple(sorted(labels.items())),
                taints=(_TAINT,) if tainted[i] else (),
                allocatable=tuple(sorted((*_amounts((cpu, memory, gpus)), ("pods", 110)))),
            )
        )
    return nodes


def _amounts(row: Int64s | tuple[int, int, int]) -> Amounts:
    cpu, memory, gpus = map(int, row)
    return tuple((name, amount) for name, amount in (("cpu", cpu), ("memory", memory * _MIB), (GPU, gpus)) if amount)


def _shared(amounts: Int64s) -> Iterator[Amounts]:
    """Each row as Amounts; equal rows are one object."""
    seen: dict[tuple[int, ...], Amounts] = {}
    for row in map(tuple, amounts.tolist()):
        if row not in seen:
            seen[row] = _amounts(row)
        yield seen[row]


def _running_kinds(
    size: Size, workloads: tuple[Workload, ...], nodes: list[Node], at: Int64s
) -> tuple[tuple[PodSignature, Int64s], ...]:
    """Running pods by workload; of one that spreads as many run in each zone."""
    draw = _random(size, "apps")
    app = draw.integers(_RUNNING_APPS, size=len(at))
    kinds = [PodSignature(_NAMESPACE, (("app", f"running-{i:03}"),)) for i in range(_RUNNING_APPS)]
    zones = np.array([dict(node.labels)[ZONE] for node in nodes])[at]
    pools = [draw.permutation(np.nonzero(zones == zone)[0]) for zone in np.unique(zones)]
    used = 0
    for workload in workloads:
        replicas = int(draw.integers(1, 9))
        if workload.kind.constraints is not None and all(used + replicas <= len(pool) for pool in pools):
            for pool in pools:
                app[pool[used : used + replicas]] = len(kinds)
            kinds.append(workload.kind)
            used += replicas
    return tuple((kind, at[app == i]) for i, kind in enumerate(kinds) if (app == i).any())


def _ratio(asked: Float64s, there: Float64s) -> Float64s:
    """Asked over there; nothing asked is 0, something asked of nothing is very much."""
    return np.where(asked > 0, asked / np.maximum(there, 1e-9), 0.0)

"""Small drawn rounds by which methods are judged: each kind is one that some methods were made for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import NodeTable, PendingPod, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.model.workload_kinds import Interference, WorkloadKind
from harness.instances import ZONE, Size, make
from harness.ruled import RULES, selector_of

LOADS = (0.7, 1.1)
#: Rules of half of the pods of a tiny round.
TINY_RULES = ("none", "anti-affinity, host", "spread 1, zone", "gangs")
#: Waiting pods in classes on empty nodes.
_NODES, _PODS, _CLASSES = 48, 600, 24
_SEEDS = range(1, 4)
_PRIORITIES = (0, 100, 1_000)
#: What pods of three kinds cost beside each other.
_PENALTIES = ((0, 0, 300), (50, 0, 900), (0, 0, 800))
_TINY_SEEDS = range(1, 21)
_GI = 2**30


def drawn(load: float, change: Callable[[Snapshot], Snapshot]) -> Iterator[Snapshot]:
    """Rounds of one load, each changed in some way."""
    for seed in _SEEDS:
        yield change(make(Size(_NODES, _PODS, _CLASSES, load=load, seed=seed)).snapshot)


def unchanged(snapshot: Snapshot) -> Snapshot:
    """The same round."""
    return snapshot


def with_priorities(snapshot: Snapshot) -> Snapshot:
    """The same pods, each app with one of three priorities."""
    apps = sorted({pod.signature.labels for pod in snapshot.pending})
    priority_of = {labels: _PRIORITIES[place % len(_PRIORITIES)] for place, labels in enumerate(apps)}
    pending = (
        msgspec.structs.replace(
            pod, pod_class=msgspec.structs.replace(pod.pod_class, priority=priority_of[pod.signature.labels])
        )
        for pod in snapshot.pending
    )
    return replace(snapshot, pending=tuple(pending))


def interfering() -> Mapping[str, Policy]:
    """A policy by which apps are of three kinds by turns, and cost something beside each other."""
    names = [tuple(f"app-{place:04}" for place in range(kind, _CLASSES, 3)) for kind in range(len(_PENALTIES))]
    kinds = tuple(
        WorkloadKind(f"kind-{kind}", LabelSelector((Requirement("app", "In", apps),)))
        for kind, apps in enumerate(names)
    )
    return {BUILT_IN.name: Policy(BUILT_IN.name, cost=CostPolicy(kinds=kinds, interference=Interference(_PENALTIES)))}


def tiny_rounds(rules: str) -> Iterator[Snapshot]:
    """Rounds of at most sixteen pods on at most five nodes, which mostly ask for more than there is.

    Args:
        rules: one of ``TINY_RULES``, of the first two of four apps.
    """
    yield from (_tiny(seed, rules) for seed in _TINY_SEEDS)


def _tiny(seed: int, rules: str) -> Snapshot:
    draw = np.random.default_rng([seed, 93])
    nodes = [
        Node(
            f"n{place}",
            labels=((HOSTNAME, f"n{place}"), (ZONE, "ab"[place % 2])),
            allocatable=(
                ("cpu", 1_000 * int(draw.integers(2, 7))),
                ("memory", 4 * _GI * int(draw.integers(1, 5))),
                ("pods", 110),
            ),
        )
        for place in range(int(draw.integers(2, 6)))
    ]
    pending: list[PendingPod] = []
    for app in range(4):
        requests = ("cpu", 500 * int(draw.choice((1, 2, 4, 6)))), ("memory", _GI * int(draw.choice((1, 2, 4, 8))))
        for member in range(int(draw.integers(2, 5))):
            name = f"bench/app-{app}-{member}"
            signature = PodSignature("bench", (("app", f"app-{app}"),))
            pod = PendingPod(name, name, PodClass(requests), BUILT_IN.name, 1.0 + member, signature)
            pending.append(_under(pod, f"gang-{app}", rules) if app < 2 else pod)
    sizes = Counter(gang for pod in pending for gang in pod.gangs)
    snapshot = build_snapshot(generation=1, now=10.0, table=NodeTable.of(nodes), running=(), pending=tuple(pending))
    return replace(snapshot, gangs={gang: Gang(gang, count) for gang, count in sizes.items()})


def _under(pod: PendingPod, gang: str, rules: str) -> PendingPod:
    if rules == "none":
        return pod
    if rules == "gangs":
        return msgspec.structs.replace(pod, gangs=(gang,))
    signature = msgspec.structs.replace(pod.signature, constraints=RULES[rules](selector_of(pod)))
    return msgspec.structs.replace(pod, signature=signature)

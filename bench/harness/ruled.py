"""Rules between pods and gangs for the pods of an instance (``instances``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import msgspec

from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.inter_pod_constraints import (
    HOSTNAME,
    AffinityTerm,
    InterPodConstraints,
    MaxPerDomain,
    SpreadConstraint,
)
from flowcore.model.selectors import LabelSelector, Requirement
from harness.instances import POOL, ZONE

#: Pods of a gang.
_GANG = 8
_NAMESPACE = "bench"


def _spread(key: str, max_skew: int) -> Callable[[LabelSelector], InterPodConstraints]:
    return lambda own: InterPodConstraints(spread=(SpreadConstraint(key, max_skew, own),))


RULES: dict[str, Callable[[LabelSelector], InterPodConstraints]] = {
    "anti-affinity, host": lambda own: InterPodConstraints(
        anti_affinity=(AffinityTerm(HOSTNAME, own, (_NAMESPACE,), None),)
    ),
    "cap 20, pool": lambda own: InterPodConstraints(limits=(MaxPerDomain("cap", POOL, (own,), None, 20),)),
    "spread 1, zone": _spread(ZONE, 1),
    "spread 3, zone": _spread(ZONE, 3),
}


def selector_of(pod: PendingPod) -> LabelSelector:
    """Selects the pods of a pod's app."""
    return LabelSelector((Requirement("app", "In", (_app(pod),)),))


def _app(pod: PendingPod) -> str:
    return dict(pod.signature.labels)["app"]


def under_rules(snapshot: Snapshot) -> Snapshot:
    """The same pods: of every four apps one keeps its pods apart, one spreads, one comes in gangs of eight."""
    apps = {app: place for place, app in enumerate(sorted({_app(pod) for pod in snapshot.pending}))}
    wanted = {0: RULES["anti-affinity, host"], 1: RULES["spread 3, zone"]}
    members: Counter[str] = Counter()
    pending = []
    for pod in snapshot.pending:
        kind = apps[_app(pod)] % 4
        if kind in wanted:
            signature = msgspec.structs.replace(pod.signature, constraints=wanted[kind](selector_of(pod)))
            pending.append(msgspec.structs.replace(pod, signature=signature))
        elif kind == 2:
            gang = f"{_app(pod)}-{members[_app(pod)] // _GANG}"
            members[_app(pod)] += 1
            pending.append(msgspec.structs.replace(pod, gangs=(gang,)))
        else:
            pending.append(pod)
    sizes = Counter(gang for pod in pending for gang in pod.gangs)
    gangs = {gang: Gang(gang, count) for gang, count in sizes.items()}
    return replace(snapshot, pending=tuple(pending), gangs=gangs)

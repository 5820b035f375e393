"""Constraints of policies that are gangs: all in one domain ("together"), and one on each matching node or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.model.constrained import gangs_of, named
from flowcore.model.constraints import Global, OneDomain
from flowcore.model.gangs import Gang
from flowcore.model.neighbours import Described
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels
from flowcore.model.snapshot import Int64s, PendingPod, Snapshot


def with_constraint_gangs(snapshot: Snapshot, policies: Mapping[str, Policy]) -> Snapshot:
    """The snapshot with the gangs that policies' constraints make of its waiting pods, beside those that it has.

    Args:
        policies: by name; those of all waiting pods are among them.
    """
    making = {name: list(gangs_of(policy)) for name, policy in policies.items()}
    if not any(making.values()):
        return snapshot
    found: dict[str, tuple[Policy, OneDomain | Global]] = {}
    waiting: dict[str, int] = {}
    replacing: dict[str, str] = {}
    known: dict[tuple[str, Labels], tuple[str, ...]] = {}

    def joined(pod: PendingPod) -> PendingPod:
        policy, labels = policies[pod.policy], pod.kind.labels
        names = known.get((pod.policy, labels))
        if names is None:
            mine = [each for each in making[pod.policy] if each.pods.matches(labels)]
            names = known[pod.policy, labels] = tuple(named(each, policy) for each in mine)
            found.update(zip(names, ((policy, each) for each in mine), strict=True))
        for name in names:
            waiting[name] = waiting.get(name, 0) + 1
            if pod.replaces is not None:
                replacing.setdefault(name, pod.key)
        return replace(pod, gangs=(*pod.gangs, *names)) if names else pod

    pending = tuple(map(joined, snapshot.pending))
    gangs = {name: _gang(name, waiting[name], *each, snapshot) for name, each in found.items()}
    for name, key in replacing.items():
        flaw = f"{name} has {key} among its pods, which is to take another's place: that is decided for it alone"
        gangs[name] = msgspec.structs.replace(gangs[name], flaw=flaw)
    return replace(snapshot, pending=pending, gangs={**snapshot.gangs, **gangs})


def _gang(name: str, waiting: int, policy: Policy, constraint: OneDomain | Global, snapshot: Snapshot) -> Gang:
    running = _running(policy, constraint, snapshot)
    if isinstance(constraint, Global):
        # Nodes that have one already need none; a cap keeps further pods away from them.
        matching = {at for at, node in enumerate(snapshot.table.nodes) if constraint.nodes.matches(node.labels)}
        lacking = matching - set(running.tolist())
        return Gang(name, len(lacking), started=len(lacking) < len(matching))
    column = snapshot.table.column(constraint.topology_key)
    codes = set(column.codes[running].tolist()) - {-1}
    domains = sorted(column.values[code] for code in codes)
    flaw = ""
    if len(domains) > 1:
        there = f"{', '.join(domains[:-1])} and {domains[-1]}"
        flaw = f"{name} keeps its pods in one {constraint.topology_key}, and some run in {there} already"
    return Gang(
        name,
        least=waiting,
        topology=constraint.topology_key,
        domain=domains[0] if domains else "",
        flaw=flaw,
        started=bool(domains),
    )


def _running(policy: Policy, constraint: OneDomain | Global, snapshot: Snapshot) -> Int64s:
    """int64[K]: nodes with pods that the constraint speaks of, in the namespaces that the policy selects."""
    crowd = snapshot.neighbours.crowd(Described((constraint.pods,), policy.selects.namespaces))
    return np.unique(crowd.on(snapshot.table.index)[0])

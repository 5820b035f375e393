"""Constraints of policies that are gangs: OneDomain (all pods in one domain) and Global (one on each matching node)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s, PendingPod, Snapshot
from flowcore.model.constraint_limits import all_or_none_constraints, display_name
from flowcore.model.constraints import Global, OneDomain
from flowcore.model.gangs import Gang
from flowcore.model.pod_index import ConstraintMatch
from flowcore.model.policies import Policy
from flowcore.model.selectors import Labels
from flowcore.planning.problem.passes.round_pass import Pass
from flowcore.planning.problem.problem import Problem


class FormConstraintGangs(Pass):
    """Makes a gang of the pods of each such constraint."""

    def apply(self, problem: Problem) -> Problem:
        """A snapshot with more gangs, and pods that are in them."""
        return problem.with_snapshot(with_constraint_gangs(problem.snapshot, problem.policies))


def with_constraint_gangs(snapshot: Snapshot, policies: Mapping[str, Policy]) -> Snapshot:
    """The snapshot with the gangs that constraints make of its pending pods, beside those that it has.

    Args:
        policies: by name; those of all pending pods are among them.
    """
    constraints = {name: list(all_or_none_constraints(policy)) for name, policy in policies.items()}
    if not any(constraints.values()):
        return snapshot
    constraint_by_gang: dict[str, tuple[Policy, OneDomain | Global]] = {}
    sizes: dict[str, int] = {}
    replaced: dict[str, list[str]] = {}
    gangs_by_labels: dict[tuple[str, Labels], tuple[str, ...]] = {}

    def with_gangs(pod: PendingPod) -> PendingPod:
        if pod.victim is not None and pod.victim.has_left:
            return pod  # its place was planned with them, and is held
        policy, labels = policies[pod.policy], pod.signature.labels
        names = gangs_by_labels.get((pod.policy, labels))
        if names is None:
            matching = [each for each in constraints[pod.policy] if each.pods.matches(labels)]
            names = gangs_by_labels[pod.policy, labels] = tuple(display_name(each, policy) for each in matching)
            constraint_by_gang.update(zip(names, ((policy, each) for each in matching), strict=True))
        for name in names:
            sizes[name] = sizes.get(name, 0) + 1
            if pod.victim is not None:
                replaced.setdefault(name, []).append(pod.victim.node)
        return msgspec.structs.replace(pod, gangs=(*pod.gangs, *names)) if names else pod

    pending = tuple(map(with_gangs, snapshot.pending))
    gangs = {
        name: _gang(name, sizes[name], replaced.get(name, ()), policy, constraint, snapshot)
        for name, (policy, constraint) in constraint_by_gang.items()
    }
    return replace(snapshot, pending=pending, gangs={**snapshot.gangs, **gangs})


def _gang(
    name: str,
    size: int,
    replaced: Sequence[str],
    policy: Policy,
    constraint: OneDomain | Global,
    snapshot: Snapshot,
) -> Gang:
    """The gang of a constraint.

    Args:
        size: how many of its pods wait.
        replaced: nodes of the pods whose places some of them are to take.
    """
    nodes = _nodes_with_pods(policy, constraint, snapshot)
    if isinstance(constraint, Global):
        # Nodes that have one already need none; a limit keeps further pods away from them.
        matching = {
            node_row for node_row, node in enumerate(snapshot.table.nodes) if constraint.nodes.matches(node.labels)
        }
        lacking = matching - set(nodes.tolist())
        # Who takes the place of one of them is needed beside the pods for nodes that lack one.
        also = sum(snapshot.table.index.get(node, -1) not in lacking for node in replaced)
        return Gang(name, len(lacking) + also, partially_placed=len(lacking) < len(matching))
    column = snapshot.table.column(constraint.topology_key)
    codes = set(column.codes[nodes].tolist()) - {-1}
    domains = sorted(column.values[code] for code in codes)
    reason = ""
    if len(domains) > 1:
        listed = f"{', '.join(domains[:-1])} and {domains[-1]}"
        reason = f"{name} keeps its pods in one {constraint.topology_key}, and some run in {listed} already"
    return Gang(
        name,
        min_placed=size,
        topology_key=constraint.topology_key,
        domain=domains[0] if domains else "",
        unschedulable_reason=reason,
        partially_placed=bool(domains),
    )


def _nodes_with_pods(policy: Policy, constraint: OneDomain | Global, snapshot: Snapshot) -> Int64s:
    """int64[K]: nodes with running pods that the constraint selects, in the namespaces that the policy selects."""
    matching_pods = snapshot.pod_index.matching_pods(ConstraintMatch((constraint.pods,), policy.selects.namespaces))
    return np.unique(matching_pods.to_arrays(snapshot.table.index)[0])

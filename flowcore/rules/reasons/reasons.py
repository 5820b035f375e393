"""Reasons for pending pods, in kube-scheduler's own wording where it has one.

Source: kube-scheduler framework/types.go (FitError.Error): "0/5 nodes are available: 3 Insufficient cpu, ...".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flowcore.cluster.arrays.device_objects import ClaimKey
from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.model.gangs import Gang
from flowcore.model.hyper_nodes import is_tier_key
from flowcore.model.pod_index import EMPTY_SIGNATURE, PodSignature
from flowcore.model.pods import PodClass
from flowcore.model.selectors import TOPOLOGY_SEPARATOR
from flowcore.rules.filters import Verdicts, rejected_before_nodes, run_filters
from flowcore.rules.filters.registry import FilterRunner, run_filter
from flowcore.rules.reasons.codes import NO_NODES
from flowcore.rules.reasons.exclusion import smallest_exclusion
from flowcore.rules.reasons.more_nodes import more_nodes_help
from flowcore.rules.verdicts.groups import Group


class Reason(NamedTuple):
    """Why a pod waits.

    Attributes:
        text: a sentence for people.
        code: one of ``codes.CODES``.
        more_nodes_help: whether another node may take the pod.
        settles_in: seconds until waiting costs as much as the cheapest node that has room; 0: no such reason, or never.
        frees: namespace and name of each ResourceClaim that is freed for the pod.
    """

    text: str
    code: str
    more_nodes_help: bool
    settles_in: float = 0.0
    frees: tuple[ClaimKey, ...] = ()


def summary(verdicts: Verdicts) -> str:
    """How many nodes are good enough, and how many are not for which reason.

    What ends before any node is looked at has no count, as in kube-scheduler (Diagnosis.PreFilterMsg).
    """
    return _available(int(verdicts.fits.sum()), verdicts)


def _available(count: int, verdicts: Verdicts) -> str:
    total = len(verdicts.table.nodes)
    if total == 0:
        return "0/0 nodes are available: the cluster has no nodes."
    if verdicts.before_nodes:
        return before_nodes(total, verdicts.before_nodes)
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in verdicts.counts().items()))
    return f"{count}/{total} nodes are available: {listed}." if listed else f"{count}/{total} nodes are available."


def before_nodes(total: int, reason: str) -> str:
    """Why a pod waits for which no node is looked at, of so many."""
    return f"0/{total} nodes are available: {reason}."


def reason_for(
    group: Group,
    *,
    before: Snapshot | None,
    after: Snapshot,
    runner: FilterRunner = run_filter,
    winners: Callable[[Bools], str] = lambda _nodes: "other pods",
) -> Reason:
    """Why pods of a group stay pending after a round.

    Args:
        before: the snapshot that the round began with; None: no node had room for them there.
        after: the same with the round's placements counted.
        runner: who asks the filters.
        winners: says of nodes that had room, bool[N], which pods got it.
    """
    verdicts = _verdicts(group, after, runner)
    text = _available(0, verdicts) + _what_decides(verdicts)
    if before is not None:
        nodes = _verdicts(group, before, runner).fits
        if nodes.any():
            text += f" There was room for some of these pods. It went to {winners(nodes)}."
    curable = more_nodes_help(group.pod_class, group.signature, after, verdicts)
    return Reason(text, verdicts.furthest_filter() or NO_NODES, curable)


def _verdicts(group: Group, snapshot: Snapshot, runner: FilterRunner) -> Verdicts:
    """No filter is asked where the pods are not looked a node for: what it would say decides nothing."""
    at_once = rejected_before_nodes(group.pod_class, snapshot, group.signature)
    return at_once or run_filters(group.pod_class, snapshot, group.signature, runner)


def _what_decides(verdicts: Verdicts) -> str:
    """The filters that exclude every node, where the counts name others too: they would not help to know."""
    decide = smallest_exclusion(verdicts).filters
    if not decide or len(decide) == len(verdicts.first_filters()):
        return ""
    if len(decide) == 1:
        return f" {decide[0]} alone rejects every node."
    return f" {', '.join(decide[:-1])} and {decide[-1]} together reject every node."


def no_domain(gang: Gang, table: NodeTable) -> str:
    """Why no node will do for a gang whose pods keep to one domain of a label; "" where some may."""
    if not gang.topology_key or bool((table.column(gang.topology_key).codes >= 0).any()):
        return ""
    if TOPOLOGY_SEPARATOR in gang.topology_key:
        return f"{gang.name} keeps to one domain of {gang.topology_key}, and no node has all of these labels"
    if is_tier_key(gang.topology_key):
        return f"{gang.name} keeps to one domain of {gang.topology_key}, and no node is in one"
    return f"{gang.name} keeps to one domain of {gang.topology_key}, a label that no node has"


def node_reasons(pod_class: PodClass, after: Snapshot, signature: PodSignature = EMPTY_SIGNATURE) -> dict[str, str]:
    """Each node that a class does not fit on, with the reason."""
    verdicts = run_filters(pod_class, after, signature)
    return {node.name: verdicts.of_node(row)[1] for row, node in enumerate(after.table.nodes) if not verdicts.fits[row]}

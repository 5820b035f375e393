"""All filters in kube-scheduler's order, then policies' constraints: whether each node takes a class, and why not.

kube-scheduler stops at the first plugin that rejects a node (framework/runtime RunFilterPlugins). So do these verdicts,
so that they give the same reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from flowcore.cluster.arrays.snapshot import Bools, NodeTable, Snapshot
from flowcore.model.pod_index import EMPTY_SIGNATURE, PodIndex, PodSignature
from flowcore.model.pods import PodClass
from flowcore.rules.filters import (
    dynamic_resources,
    inter_pod_affinity,
    node_resources_fit,
    pod_topology_spread,
    policy_constraints,
    volume_filters,
)
from flowcore.rules.filters.registry import IN_ORDER, NODE_UNREADABLE, ROUND_INVARIANT, Filter, FilterRunner, run_filter
from flowcore.rules.filters.rejection import Rejection


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Each node's verdict for one class.

    Attributes:
        fits: bool[N].
        by_filter: the filters that rejected nodes, in order; the first that rejects a node is its verdict.
        before_nodes: why kube-scheduler looks at no node (PreFilter), or ends its attempt at one of them, in its words;
            "": it looks at all of them.
    """

    table: NodeTable
    fits: Bools
    by_filter: tuple[tuple[str, tuple[Rejection, ...]], ...]
    before_nodes: str = ""

    def of_node(self, node: int) -> tuple[str, str]:
        """Filter and reason for the node of this row; two empty strings where it fits."""
        for name, rejections in self.by_filter:
            reasons = [rejection.reason for rejection in rejections if rejection.nodes[node]]
            if reasons:
                return name, self.table.nodes[node].problem if name == NODE_UNREADABLE else ", ".join(reasons)
        return "", ""

    def rejected_by(self, names: Collection[str]) -> Bools:
        """bool[N]: nodes that one of these filters rejects."""
        rejected = np.zeros(len(self.table.nodes), dtype=np.bool_)
        for name, rejections in self.by_filter:
            for rejection in rejections if name in names else ():
                rejected |= rejection.nodes
        return rejected

    def first_filters(self) -> list[str]:
        """The filters that decide a node's verdict, in order: each rejects a node that those before it do not."""
        undecided, names = np.ones(len(self.table.nodes), dtype=np.bool_), dict[str, None]()
        for name, rejections in self.by_filter:
            rejected = np.zeros_like(undecided)
            for rejection in rejections:
                rejected |= rejection.nodes
            if (undecided & rejected).any():
                names[name] = None
            undecided &= ~rejected
        return list(names)

    def furthest_filter(self) -> str:
        """The filter that rejects the nodes which pass the most filters; "" where no node is rejected."""
        return next(reversed(self.first_filters()), "")

    def counts(self) -> Counter[str]:
        """How many nodes are rejected for each reason, as kube-scheduler counts them in its message."""
        result: Counter[str] = Counter()
        undecided = np.ones(len(self.table.nodes), dtype=np.bool_)
        for name, rejections in self.by_filter:
            rejected = np.zeros_like(undecided)
            for rejection in rejections:
                nodes = undecided & rejection.nodes
                text = "node(s) with an unreadable allocatable" if name == NODE_UNREADABLE else rejection.reason
                result[text] += int(nodes.sum())
                rejected |= nodes
            undecided &= ~rejected
        return Counter({reason: count for reason, count in result.items() if count})


def run_filters(
    pod_class: PodClass,
    snapshot: Snapshot,
    signature: PodSignature = EMPTY_SIGNATURE,
    runner: FilterRunner = run_filter,
    *,
    errors_end: bool = True,
) -> Verdicts:
    """Verdicts of every filter for one class, for the snapshot as it stands.

    Args:
        signature: what rules between pods read of it, with its own rules.
        runner: runs a filter, perhaps with a cache.
        errors_end: whether an error on one node rejects all others, too.
    """
    table = snapshot.table
    contradictory = _contradictory(signature, table)
    rejecting = [(each, runner(each, pod_class, signature, snapshot)) for each in IN_ORDER]
    at_once = (*_prefilters(pod_class, signature, snapshot), *(_fatal_errors(rejecting, table) if errors_end else ()))
    by_filter = (*contradictory, *at_once, *((each.name, rejections) for each, rejections in rejecting))
    fits = np.ones(len(table.nodes), dtype=np.bool_)
    for _, rejections in by_filter:
        for rejection in rejections:
            fits &= ~rejection.nodes
    with_rejections = tuple((name, rejections) for name, rejections in by_filter if rejections)
    # A policy's own contradiction is told with the number of nodes, as all that kube-scheduler does not know.
    is_ours = any(rejections for _, rejections in contradictory)
    reasons = (each.reason for _, rejections in at_once for each in rejections if not is_ours)
    return Verdicts(table, fits, with_rejections, next(reasons, ""))


def rejected_before_nodes(pod_class: PodClass, snapshot: Snapshot, signature: PodSignature) -> Verdicts | None:
    """The verdicts of PreFilter, where that rejects every node, without those of the filters that come after it.

    None: kube-scheduler looks at nodes, or a policy contradicts itself.
    """
    rejecting = _prefilters(pod_class, signature, snapshot)
    reasons = [each.reason for _, rejections in rejecting for each in rejections]
    if not reasons or any(rejections for _, rejections in _contradictory(signature, snapshot.table)):
        return None
    none = np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    return Verdicts(snapshot.table, none, tuple(each for each in rejecting if each[1]), reasons[0])


def round_invariant_fits(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, runner: FilterRunner = run_filter
) -> Bools:
    """bool[N]: nodes that pass every filter whose verdict no placement of a round can change."""
    if (
        _fits_no_node(pod_class, signature, snapshot)
        or volume_filters.prefilter_rejections(pod_class.volumes, snapshot.storage, snapshot.table)
        or dynamic_resources.prefilter_rejections(pod_class, snapshot)
    ):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    if any(which.ends_attempt and runner(which, pod_class, signature, snapshot) for which in ROUND_INVARIANT):
        rejecting = [(each, runner(each, pod_class, signature, snapshot)) for each in IN_ORDER]
        if _fatal_errors(rejecting, snapshot.table):
            return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    return _passing(ROUND_INVARIANT, pod_class, signature, snapshot, runner)


def closed_by_rules(pod_class: PodClass, signature: PodSignature, pod_index: PodIndex, table: NodeTable) -> Bools:
    """bool[N]: nodes that rules between pods close to a pod: its own, those of its policy, others' anti-affinity.

    Args:
        signature: with the rules of its policy.
        pod_index: all pods that have a node, or are to have one.
    """
    constraints, rejecting = signature.constraints, list(inter_pod_affinity.rejections(signature, pod_index, table))
    if constraints is not None:
        rejecting += [
            *policy_constraints.contradictory(constraints, table),
            *inter_pod_affinity.unreadable(constraints, table),
            *pod_topology_spread.unreadable(constraints, table),
            *inter_pod_affinity.own_rejections(signature, pod_index, table),
            *pod_topology_spread.rejections(pod_class, signature, pod_index, table),
            *policy_constraints.nodes_rejections(signature, table),
            *policy_constraints.rejections(signature, pod_index, table),
        ]
    closed = np.zeros(len(table.nodes), dtype=np.bool_)
    for rejection in rejecting:
        closed |= rejection.nodes
    return closed


def pod_independent_fits(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, runner: FilterRunner = run_filter
) -> Bools:
    """bool[N]: nodes that pass every filter whose verdict no coming or leaving of any pod can change."""
    if _fits_no_node(pod_class, signature, snapshot):
        return np.zeros(len(snapshot.table.nodes), dtype=np.bool_)
    return static_fits(pod_class, signature, snapshot, runner)


def static_fits(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot, runner: FilterRunner = run_filter
) -> Bools:
    """bool[N]: nodes that pass every filter that reads nothing but the node."""
    static = [which for which in IN_ORDER if which.state is None]
    return _passing(static, pod_class, signature, snapshot, runner)


def _fatal_errors(
    rejecting: Sequence[tuple[Filter, tuple[Rejection, ...]]], table: NodeTable
) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """An error of a filter on a node that no other filter rejects ends a pod's cycle: every node is rejected.

    Args:
        rejecting: each filter with what it rejects. Of several errors that of the first node counts.
    """
    for which, errors in rejecting:
        if not (which.ends_attempt and errors):
            continue
        left = np.ones(len(table.nodes), dtype=np.bool_)
        for rule, rejections in rejecting:
            for rejection in rejections if rule is not which else ():
                left &= ~rejection.nodes
        fatal = [error for error in errors if (error.nodes & left).any()]
        if fatal:
            first = min(fatal, key=lambda error: int((error.nodes & left).argmax()))
            return ((which.name, (Rejection(first.reason, np.ones_like(left)),)),)
    return ()


def _passing(
    filters: Iterable[Filter],
    pod_class: PodClass,
    signature: PodSignature,
    snapshot: Snapshot,
    runner: FilterRunner,
) -> Bools:
    """bool[N]: nodes that pass some filters."""
    fits = np.ones(len(snapshot.table.nodes), dtype=np.bool_)
    for which in filters:
        for rejection in runner(which, pod_class, signature, snapshot):
            fits &= ~rejection.nodes
    return fits


def _fits_no_node(pod_class: PodClass, signature: PodSignature, snapshot: Snapshot) -> bool:
    """Whether no node takes a pod, whatever is there: its rules cannot be met, or no node offers what it asks for."""
    constraints = signature.constraints
    if constraints is not None and (
        constraints.contradiction or constraints.unreadable_affinity or constraints.unreadable_spread
    ):
        return True
    return bool(node_resources_fit.not_offered(pod_class, snapshot))


def _prefilters(
    pod_class: PodClass, signature: PodSignature, snapshot: Snapshot
) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """What ends a pod's cycle before any node is filtered: each rejects every node."""
    return (
        *volume_filters.prefilter_rejections(pod_class.volumes, snapshot.storage, snapshot.table),
        *_unreadable(signature, snapshot.table),
        *dynamic_resources.prefilter_rejections(pod_class, snapshot),
    )


def _contradictory(signature: PodSignature, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """Comes before all filters: room would not help, only another policy."""
    return (
        ()
        if signature.constraints is None
        else ((policy_constraints.NAME, policy_constraints.contradictory(signature.constraints, table)),)
    )


def _unreadable(signature: PodSignature, table: NodeTable) -> tuple[tuple[str, tuple[Rejection, ...]], ...]:
    """A selector that cannot be parsed ends a pod's cycle in PreFilter, before any node is filtered."""
    if signature.constraints is None:
        return ()
    return (
        (pod_topology_spread.NAME, pod_topology_spread.unreadable(signature.constraints, table)),
        (inter_pod_affinity.NAME, inter_pod_affinity.unreadable(signature.constraints, table)),
    )
